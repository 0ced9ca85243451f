"""A server that speaks as Amazon S3 does, over the files of a folder: python3 s3.py FOLDER WORK

FOLDER/BUCKET/KEY is an object. Every request must be signed by AWS's Signature Version 4, which is computed here from
what came, as https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html says; those of the bucket
"public" may be without. Who may ask is KEYS. A bucket's name says what goes wrong there:

  slow       each part of an object is refused once: 503 SlowDown
  elsewhere  it lies in eu-west-3, and requests for another region are redirected there, without a Location
  malformed  the same, but they are refused as S3 refuses signatures for another region: 400, with the region in XML
  cut        a listing ends in the middle
  endless    a listing says that it goes on, and not where
  circle     a listing goes on where it is
  verbatim   keys in listings are as they are, whatever is asked for
  late       this machine's clock is not the server's
  denied     nobody may read it
  expiring   after two answers the token "new token" has expired there, and "newer token" goes with its key

What is written there (PutObject, DeleteObject, multipart uploads) must have the SHA-256 that its request is signed
with; parts but the last have PART_LEAST bytes or more. Other buckets, for writing:

  busy       each part is refused once: 503 SlowDown
  resets     the first request for each part is cut off in its middle
  hesitant   to complete an upload is answered by 200 and InternalError once
  unfinished the same always, with another error
  lost       an upload is completed, and no answer comes; nor does one to the first that begins
  expires    the third part and those after it find that the token has expired
  hangs      the third part and those after it are not answered for a minute
  stalls     the very first part is not
  clings     the same as hangs, and no upload is ended for a minute

Objects whose keys WORK/withheld has, a line each, cannot be read.

Listings have PAGE objects a page. Beside that, as AWS's machines give credentials: /latest/… (IMDSv2), the same at
/once/latest/…, which expire and are given once, /container and /container/busy, where the first request is refused.

It writes to WORK: `port`, `s3.pid`, `open`, which has a line "bucket/key id" for each open upload, and a line for each
request to `s3.log`: method, path with query, status, Range.
"""

import hashlib
import hmac
import json
import os
import re
import shutil
import socket
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape, unescape

FOLDER, WORK = sys.argv[1:3]
PAGE = 3
PART_LEAST = 5 << 20
# access key: (secret, the session token that goes with it, the region that is signed for; None: any)
KEYS = {
    "AKIDEXAMPLE": ("wJalr/XUtn+FEMI=K7MDENG", None),
    "ASIATEMPORARY": ("tempo/rary", "new token"),
    "ASIAINSTANCE": ("of the role", "role's token"),
    "ASIACONTAINER": ("of the task", "task's token"),
}
NEWER = {"new token": "newer token"}
HOME = {"elsewhere": "eu-west-3", "malformed": "eu-west-3"}
lock = threading.Lock()
asked = set()
given = []  # what was answered to the token that expires
uploads = {}  # id: (bucket, key, {number: (ETag, path)})
tags = {}  # path: ((size, time), ETag)


def note_uploads():
    with open(os.path.join(WORK, "open.new"), "w") as file:
        file.writelines(f"{bucket}/{key} {name}\n" for name, (bucket, key, _) in uploads.items())
    os.rename(os.path.join(WORK, "open.new"), os.path.join(WORK, "open"))


def put_in_place(path, parts, tag=None):
    """An object is there whole or not at all."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = os.path.join(WORK, f"object-{threading.get_ident()}")
    with open(new, "wb") as file:
        for part in parts:
            file.write(part)
    os.replace(new, path)
    if tag:
        status = os.stat(path)
        tags[path] = ((status.st_size, status.st_mtime_ns), tag)


def tag_of(path):
    status = os.stat(path)
    known, tag = tags.get(path, (None, None))
    if known != (status.st_size, status.st_mtime_ns):
        with open(path, "rb") as file:
            tag = '"' + hashlib.md5(file.read()).hexdigest() + '"'
        tags[path] = ((status.st_size, status.st_mtime_ns), tag)
    return tag


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Refusal(Exception):
    def __init__(self, status, code, message, more="", headers=()):
        super().__init__(code)
        self.status, self.code, self.message, self.more, self.headers = status, code, message, more, headers


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=(), length=None):
        with lock, open(os.path.join(WORK, "s3.log"), "a") as log:
            log.write(f"{self.command} {self.path} {status} {self.headers.get('Range', '-')}\n")
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(length if length is not None else len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # ---- who asks

    def check_signature(self, region):
        """The access key and whether the signature is that of the request; refuses what does not fit."""
        words = self.headers["Authorization"]
        if not words.startswith("AWS4-HMAC-SHA256 "):
            raise Refusal(400, "InvalidRequest", "Please use AWS4-HMAC-SHA256.")
        parts = dict(p.strip().split("=", 1) for p in words.split(" ", 1)[1].split(","))
        key, date, signed_region, service, end = parts["Credential"].rsplit("/", 4)
        if (service, end) != ("s3", "aws4_request"):
            raise Refusal(400, "AuthorizationHeaderMalformed", "The scope is another service's.")
        if key not in KEYS:
            raise Refusal(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
        secret, token = KEYS[key]
        given = self.headers.get("x-amz-security-token")
        names = parts["SignedHeaders"].split(";")
        for name in ("host", "x-amz-date", "x-amz-content-sha256"):
            if name not in names:
                raise Refusal(403, "AccessDenied", f"There were headers present in the request which were not signed: {name}")
        path, _, query = self.path.partition("?")
        pairs = sorted(p if "=" in p else p + "=" for p in query.split("&")) if query else []
        request = "\n".join(
            [self.command, path, "&".join(pairs)]
            + [f"{n}:{' '.join(self.headers.get(n, '').split())}" for n in names]
            + ["", ";".join(names), self.headers["x-amz-content-sha256"]]
        )
        scope = f"{date}/{signed_region}/s3/aws4_request"
        text = "\n".join(
            ["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope, hashlib.sha256(request.encode()).hexdigest()]
        )
        signer = ("AWS4" + secret).encode()
        for word in (date, signed_region, "s3", "aws4_request"):
            signer = digest(signer, word)
        if not hmac.compare_digest(digest(signer, text).hex(), parts["Signature"]):
            raise Refusal(403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
        if token is not None and given == "old token":
            raise Refusal(400, "ExpiredToken", "The provided token has expired.")
        if given != token and given != NEWER.get(token):
            raise Refusal(403, "InvalidToken", "The provided token is malformed or otherwise invalid.")
        if region and signed_region != region:
            return signed_region
        return None

    # ---- what is asked for

    def do_CONNECT(self):
        """It is no proxy, but notes what a proxy would be asked for."""
        self.answer(403)

    def is_first(self, path=None):
        """Of the requests for this path."""
        path = path or self.path
        with lock:
            is_first = path not in asked
            asked.add(path)
        return is_first

    def do_PUT(self):
        if self.path == "/once/latest/api/token" and not self.is_first():
            return self.answer(404)
        self.path = self.path.removeprefix("/once")
        if self.path == "/latest/api/token" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
            return self.answer(200, b"of the instance")
        return self.do_POST()

    def do_POST(self):
        size = int(self.headers.get("Content-Length", 0))
        if self.is_cut_off():
            self.rfile.read(size // 2)
            return self.cut_off()
        self.body = self.rfile.read(size)
        if len(self.body) == size:  # who sent it is still there
            self.answered()

    def do_DELETE(self):
        self.body = b""
        self.answered()

    do_HEAD = do_DELETE

    def do_GET(self):
        self.body = b""
        if self.path.startswith(("/latest/", "/once/latest/", "/container")):
            return self.credentials()
        self.answered()

    def cut_off(self):
        """As when the server dies: no answer, and the connection is reset."""
        with lock, open(os.path.join(WORK, "s3.log"), "a") as log:
            log.write(f"{self.command} {self.path} reset -\n")
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.rfile.close()
        self.connection.close()

    def is_cut_off(self):
        return self.path.startswith("/resets/") and "partNumber=" in self.path and self.is_first()

    def answered(self):
        try:
            return self.bucket()
        except Refusal as no:
            body = (
                f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{no.code}</Code><Message>{escape(no.message)}'
                f"</Message>{no.more}<RequestId>1</RequestId></Error>"
            )
            return self.answer(no.status, body.encode(), [("Content-Type", "application/xml"), *no.headers])

    def credentials(self):
        expires = "2001" if self.path.startswith("/once/") else "2099"
        self.path = self.path.removeprefix("/once")
        if self.path.startswith("/latest/"):
            if self.headers.get("X-aws-ec2-metadata-token") != "of the instance":
                return self.answer(401)
            if self.path == "/latest/meta-data/iam/security-credentials/":
                return self.answer(200, b"trainer")
            key = "ASIAINSTANCE"
        else:
            if self.headers.get("Authorization") != "task secret":
                return self.answer(403)
            if self.path == "/container/busy" and self.is_first():
                return self.answer(429)
            key = "ASIACONTAINER"
        given = {"Code": "Success", "AccessKeyId": key, "SecretAccessKey": KEYS[key][0], "Token": KEYS[key][1]}
        return self.answer(200, json.dumps(given | {"Expiration": expires + "-01-01T00:00:00Z"}).encode())

    def bucket(self):
        path, _, query = self.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path[1:]).partition("/")
        signed_for = self.headers.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
        if self.body and signed_for not in ("UNSIGNED-PAYLOAD", hashlib.sha256(self.body).hexdigest()):
            raise Refusal(400, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match "
                          "what was computed.")
        home = HOME.get(bucket)
        if self.headers.get("Authorization"):
            signed = self.check_signature(home)
            if signed and bucket == "elsewhere":
                raise Refusal(301, "PermanentRedirect", "The bucket you are attempting to access must be addressed using "
                              "the specified endpoint.", headers=[("x-amz-bucket-region", home)])
            if signed:
                raise Refusal(400, "AuthorizationHeaderMalformed", f"The authorization header is malformed; the region "
                              f"'{signed}' is wrong; expecting '{home}'", f"<Region>{home}</Region>")
        elif bucket != "public":
            raise Refusal(403, "AccessDenied", "Access Denied")
        if bucket == "late":
            raise Refusal(403, "RequestTimeTooSkewed",
                          "The difference between the request time and the current time is too large.")
        if bucket == "expiring" and self.headers.get("x-amz-security-token") == "new token":
            with lock:
                given.append(self.path)
                expired = len(given) > 2
            if expired:
                raise Refusal(403, "ExpiredToken", "The provided token has expired.")
        if bucket == "denied":
            raise Refusal(403, "AccessDenied", "Access Denied")
        folder = os.path.join(FOLDER, bucket)
        if not os.path.isdir(folder):
            raise Refusal(404, "NoSuchBucket", "The specified bucket does not exist")
        if "list-type=2" in query.split("&"):
            return self.listing(bucket, folder, urllib.parse.parse_qs(query, keep_blank_values=True))
        asks = urllib.parse.parse_qs(query, keep_blank_values=True)
        if "uploads" in asks or "uploadId" in asks:
            return self.upload(bucket, key, os.path.join(folder, key), asks)
        if self.command == "PUT":
            put_in_place(os.path.join(folder, key), [self.body])
            return self.answer(200, b"", [("ETag", tag_of(os.path.join(folder, key)))])
        if self.command == "DELETE":
            if os.path.isfile(os.path.join(folder, key)):
                os.remove(os.path.join(folder, key))
            return self.answer(204)
        if os.path.exists(os.path.join(WORK, "withheld")):
            with open(os.path.join(WORK, "withheld")) as keys:
                if key in keys.read().split("\n"):
                    raise Refusal(403, "AccessDenied", "Access Denied")
        return self.object(bucket, os.path.join(folder, key))

    # ---- uploads in parts

    def xml(self, text):
        text = '<?xml version="1.0" encoding="UTF-8"?>\n' + text
        return self.answer(200, text.encode(), [("Content-Type", "application/xml")])

    def upload(self, bucket, key, path, asks):
        if "uploads" in asks and self.command == "GET":
            prefix = asks.get("prefix", [""])[0]
            with lock:
                rows = "".join(
                    f"<Upload><UploadId>{name}</UploadId><Key>{escape(k)}</Key></Upload>"
                    for name, (b, k, _) in uploads.items()
                    if b == bucket and k.startswith(prefix)
                )
            return self.xml(f"<ListMultipartUploadsResult>{rows}</ListMultipartUploadsResult>")
        if "uploads" in asks:
            name = f"up/{len(asked)}+{time.monotonic_ns()}=="  # it has to be encoded
            with lock:
                uploads[name] = (bucket, key, {})
                note_uploads()
            if bucket == "lost" and self.is_first():
                return self.cut_off()
            return self.xml(
                f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
                f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            )
        name = asks["uploadId"][0]
        with lock:
            known = uploads.get(name)
        if not known or known[:2] != (bucket, key):
            raise Refusal(404, "NoSuchUpload", "The specified multipart upload does not exist.")
        if self.command == "DELETE":
            if bucket == "clings":
                time.sleep(60)
            return self.end_upload(name, 204)
        if self.command == "PUT":
            return self.part(bucket, name, known[2], int(asks["partNumber"][0]))
        return self.complete(bucket, name, path, known[2])

    def end_upload(self, name, status):
        with lock:
            uploads.pop(name, None)
            note_uploads()
        shutil.rmtree(os.path.join(WORK, "parts", urllib.parse.quote(name, "")), ignore_errors=True)
        if status:
            self.answer(status)

    def part(self, bucket, name, parts, number):
        if bucket == "busy" and self.is_first():
            raise Refusal(503, "SlowDown", "Please reduce your request rate.")
        if bucket == "expires" and number > 2:
            raise Refusal(400, "ExpiredToken", "The provided token has expired.")
        stalls = bucket == "stalls" and self.is_first("stalls")
        if stalls or bucket in ("hangs", "clings") and number > 2:
            time.sleep(60)
        folder = os.path.join(WORK, "parts", urllib.parse.quote(name, ""))
        os.makedirs(folder, exist_ok=True)
        tag = '"' + hashlib.md5(self.body).hexdigest() + '"'
        with open(os.path.join(folder, str(number)), "wb") as file:
            file.write(self.body)
        with lock:
            if name not in uploads:
                raise Refusal(404, "NoSuchUpload", "The specified multipart upload does not exist.")
            parts[number] = (tag, file.name)
        return self.answer(200, b"", [("ETag", tag)])

    def complete(self, bucket, name, path, parts):
        if bucket == "unfinished" or bucket == "hesitant" and self.is_first():
            code = "InternalError" if bucket == "hesitant" else "InvalidPart"
            return self.xml(f"<Error><Code>{code}</Code><Message>We could not put it together.</Message></Error>")
        listed = re.findall(r"<Part><PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag></Part>", self.body.decode())
        listed = [(int(number), unescape(tag, {"&quot;": '"'})) for number, tag in listed]
        if not listed or [n for n, _ in listed] != sorted({n for n, _ in listed}):
            raise Refusal(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
        if any(number not in parts or parts[number][0] != tag for number, tag in listed):
            raise Refusal(400, "InvalidPart", "One or more of the specified parts could not be found.")
        data = []
        for number, _ in listed:
            with open(parts[number][1], "rb") as file:
                data.append(file.read())
        if any(len(part) < PART_LEAST for part in data[:-1]):
            raise Refusal(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")
        whole = hashlib.md5(b"".join(bytes.fromhex(tag.strip('"')) for _, tag in listed)).hexdigest()
        put_in_place(path, data, f'"{whole}-{len(listed)}"')
        self.end_upload(name, None)
        if bucket == "lost":
            return self.cut_off()
        return self.xml(f"<CompleteMultipartUploadResult><ETag>{tags[path][1]}</ETag></CompleteMultipartUploadResult>")

    def listing(self, bucket, folder, query):
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("continuation-token", [""])[0]
        keys, groups = [], set()
        for root, _, names in os.walk(folder):
            for name in names:
                key = os.path.relpath(os.path.join(root, name), folder)
                if not key.startswith(prefix):
                    continue
                rest = key[len(prefix) :]
                if delimiter and delimiter in rest:
                    groups.add(prefix + rest.split(delimiter)[0] + delimiter)
                else:
                    keys.append(key)
        keys = sorted((k for k in keys if k > after), key=lambda k: k.encode())
        page, more = keys[:PAGE], len(keys) > PAGE
        coded = query.get("encoding-type") == ["url"] and bucket != "verbatim"
        code = urllib.parse.quote_plus if coded else escape
        body = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        body += f"<Name>{bucket}</Name><KeyCount>{len(page)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>"
        body += "<EncodingType>url</EncodingType>" * coded
        for key in page:
            size = os.path.getsize(os.path.join(folder, key))
            body += f"<Contents><Key>{code(key)}</Key><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for group in sorted(groups):
            body += f"<CommonPrefixes><Prefix>{code(group)}</Prefix></CommonPrefixes>"
        if more and bucket != "endless":
            after = after if bucket == "circle" and after else page[-1]
            body += f"<NextContinuationToken>{escape(after)}</NextContinuationToken>"
        body += "</ListBucketResult>"
        if bucket == "cut":
            body = body[: len(body) // 2]
        return self.answer(200, body.encode(), [("Content-Type", "application/xml")])

    def object(self, bucket, path):
        if not os.path.isfile(path):
            raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
        size, tag = os.path.getsize(path), tag_of(path)
        wanted = self.headers.get("Range")
        if bucket == "slow":
            with lock:
                is_new = (path, wanted) not in asked
                asked.add((path, wanted))
            if is_new:
                raise Refusal(503, "SlowDown", "Please reduce your request rate.")
        if self.headers.get("If-None-Match") == tag:
            return self.answer(304)
        first, last = (int(n) for n in wanted[6:].split("-")) if wanted else (0, size - 1)
        if first >= size and wanted:
            raise Refusal(416, "InvalidRange", "The requested range is not satisfiable",
                          f"<ActualObjectSize>{size}</ActualObjectSize>")
        headers = [("ETag", tag), ("Accept-Ranges", "bytes")]
        if self.command == "HEAD":
            return self.answer(200, b"", headers, size)
        with open(path, "rb") as file:
            file.seek(first)
            part = file.read(last + 1 - first)
        if wanted:
            headers.append(("Content-Range", f"bytes {first}-{first + len(part) - 1}/{size}"))
        return self.answer(206 if wanted else 200, part, headers)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
note_uploads()
with open(os.path.join(WORK, "s3.pid"), "w") as file:
    file.write(str(os.getpid()))
with open(os.path.join(WORK, "port.new"), "w") as file:
    file.write(str(server.server_address[1]))
os.rename(os.path.join(WORK, "port.new"), os.path.join(WORK, "port"))
server.serve_forever()
