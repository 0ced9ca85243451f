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

Listings have PAGE objects a page. Beside that, as AWS's machines give credentials: /latest/… (IMDSv2), the same at
/once/latest/…, which expire and are given once, /container and /container/busy, where the first request is refused.

It writes to WORK: `port`, `s3.pid`, and a line for each request to `s3.log`: method, path with query, status, Range.
"""

import hashlib
import hmac
import json
import os
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

FOLDER, WORK = sys.argv[1:3]
PAGE = 3
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

    def answer(self, status, body=b"", headers=()):
        with lock, open(os.path.join(WORK, "s3.log"), "a") as log:
            log.write(f"{self.command} {self.path} {status} {self.headers.get('Range', '-')}\n")
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
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

    def is_first(self):
        """Of the requests for this path."""
        with lock:
            is_first = self.path not in asked
            asked.add(self.path)
        return is_first

    def do_PUT(self):
        if self.path == "/once/latest/api/token" and not self.is_first():
            return self.answer(404)
        self.path = self.path.removeprefix("/once")
        if self.path == "/latest/api/token" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
            return self.answer(200, b"of the instance")
        return self.answer(405)

    def do_GET(self):
        if self.path.startswith(("/latest/", "/once/latest/", "/container")):
            return self.credentials()
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
        return self.object(bucket, os.path.join(folder, key))

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
        with open(path, "rb") as file:
            data = file.read()
        wanted = self.headers.get("Range")
        if bucket == "slow":
            with lock:
                is_new = (path, wanted) not in asked
                asked.add((path, wanted))
            if is_new:
                raise Refusal(503, "SlowDown", "Please reduce your request rate.")
        tag = '"' + hashlib.md5(data).hexdigest() + '"'
        if self.headers.get("If-None-Match") == tag:
            return self.answer(304)
        first, last = (int(n) for n in wanted[6:].split("-")) if wanted else (0, len(data) - 1)
        if first >= len(data) and wanted:
            raise Refusal(416, "InvalidRange", "The requested range is not satisfiable",
                          f"<ActualObjectSize>{len(data)}</ActualObjectSize>")
        part = data[first : last + 1]
        headers = [("ETag", tag), ("Accept-Ranges", "bytes")]
        if wanted:
            headers.append(("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}"))
        return self.answer(206 if wanted else 200, part, headers)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(os.path.join(WORK, "s3.pid"), "w") as file:
    file.write(str(os.getpid()))
with open(os.path.join(WORK, "port.new"), "w") as file:
    file.write(str(server.server_address[1]))
os.rename(os.path.join(WORK, "port.new"), os.path.join(WORK, "port"))
server.serve_forever()
