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
with. multipart.py says which buckets fail in writing.

Objects whose keys WORK/withheld has, a line each, cannot be read.

Listings have PAGE objects a page. Beside that, as AWS's machines give credentials: /latest/… (IMDSv2), the same at
/once/latest/…, which expire and are given once, /container and /container/busy, where the first request is refused.
"""

import hashlib
import hmac
import os
import urllib.parse
from xml.sax.saxutils import escape

from multipart import Multipart
from serve import FOLDER, WORK, Handler, Refusal, about, digest, keys_of, lock, put_in_place, serve

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
given = []  # what was answered to the token that expires


class S3(Multipart, Handler):
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
        own = [name.lower() for name in self.headers if name.lower().startswith("x-amz-")]
        for name in ("host", "x-amz-date", "x-amz-content-sha256", *own):
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

    def do_PUT(self):
        if self.path == "/once/latest/api/token" and not self.is_first(self.path):
            return self.answer(404)
        self.path = self.path.removeprefix("/once")
        if self.path == "/latest/api/token" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
            return self.answer(200, b"of the instance")
        return self.do_POST()

    def get(self):
        if self.path.startswith(("/latest/", "/once/latest/", "/container")):
            return self.credentials()
        return self.bucket()

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
            if self.path == "/container/busy" and self.is_first(self.path):
                return self.answer(429)
            key = "ASIACONTAINER"
        given = {"Code": "Success", "AccessKeyId": key, "SecretAccessKey": KEYS[key][0], "Token": KEYS[key][1]}
        return self.json(given | {"Expiration": expires + "-01-01T00:00:00Z"})

    def bucket(self):
        path, _, query = self.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path[1:]).partition("/")
        signed_for = self.headers.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
        if self.sent and signed_for not in ("UNSIGNED-PAYLOAD", hashlib.sha256(self.sent).hexdigest()):
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
            return self.upload(bucket, key, asks)
        if self.command == "PUT":
            put_in_place(os.path.join(folder, key), [self.sent])
            return self.answer(200, b"", [("ETag", about(os.path.join(folder, key))[0])])
        if self.command == "DELETE":
            if os.path.isfile(os.path.join(folder, key)):
                os.remove(os.path.join(folder, key))
            return self.answer(204)
        if os.path.exists(os.path.join(WORK, "withheld")):
            with open(os.path.join(WORK, "withheld")) as keys:
                if key in keys.read().split("\n"):
                    raise Refusal(403, "AccessDenied", "Access Denied")
        return self.object(bucket, os.path.join(folder, key))

    def listing(self, bucket, folder, query):
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("continuation-token", [""])[0]
        keys, groups = [], set()
        for key in keys_of(folder):
            rest = key[len(prefix) :]
            if key.startswith(prefix) and delimiter and delimiter in rest:
                groups.add(prefix + rest.split(delimiter)[0] + delimiter)
            elif key.startswith(prefix) and key > after:
                keys.append(key)
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
        if bucket == "slow" and self.is_first((path, self.headers.get("Range"))):
            raise Refusal(503, "SlowDown", "Please reduce your request rate.")
        return self.file(path)


serve(S3)
