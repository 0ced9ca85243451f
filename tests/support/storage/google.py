"""A server that speaks as Google Cloud Storage does where it is as S3: python3 google.py FOLDER WORK

FOLDER/BUCKET/KEY is an object. Requests have one of TOKENS, or a signature of a key of HMAC, which is computed here from
what came; those of the bucket "public" may have neither. Tokens are given by /token (for a user's refresh token, or a
service account's statement, whose signature `openssl` checks by WORK/public.pem; that one holds for longer than anybody
can count) and by /computeMetadata/…, where the
first one is "short lived": it holds for one request of an object. Listings have PAGE objects a page; that of the bucket
"cut" ends in the middle. Of "late" the clock is another one.

What is written there must have the SHA-256 that its request is signed with, or, with a token, its Content-MD5. With a
token S3's own headers are refused, with a signature Google's. multipart.py says which buckets fail in writing.
"""

import base64
import json
import os
import subprocess
import urllib.parse

from multipart import Multipart
from serve import FOLDER, WORK, Handler, Refusal, digest, escape, hashlib, hmac, keys_of, put_in_place, serve

PAGE = 3
TOKENS = {"ya29.user", "ya29.account", "ya29.machine", "ya29.given"}
SECRET = {"GOOG1EXAMPLE": "hmac/secret+value"}


def unpadded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Google(Multipart, Handler):
    metadata = ("x-goog-meta-", "x-amz-meta-")

    def token(self):
        form = dict(urllib.parse.parse_qsl(self.sent.decode()))
        if form.get("grant_type") == "refresh_token":
            wanted = {"client_id": "id", "client_secret": "user secret&", "refresh_token": "1//refresh"}
            if all(form.get(name) == value for name, value in wanted.items()):
                return self.json({"access_token": "ya29.user", "expires_in": 3599, "token_type": "Bearer"})
            return self.json({"error": "invalid_grant", "error_description": "Bad Request"}, 400)
        head, claims, signature = form["assertion"].split(".")
        with open(f"{WORK}/signature", "wb") as file:
            file.write(unpadded(signature))
        checked = subprocess.run(
            ["openssl", "dgst", "-sha256", "-verify", f"{WORK}/public.pem", "-signature", f"{WORK}/signature"],
            input=f"{head}.{claims}".encode(), capture_output=True,
        )
        said = json.loads(unpadded(claims))
        is_right = checked.returncode == 0 and json.loads(unpadded(head))["alg"] == "RS256"
        if is_right and said["iss"] == "trainer@project" and said["exp"] - said["iat"] == 3600:
            return self.json({"access_token": "ya29.account", "expires_in": 2**63 - 1})
        return self.json({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400)

    def check_signature(self, words):
        parts = dict(p.strip().split("=", 1) for p in words.split(" ", 1)[1].split(","))
        key, date, region, service, end = parts["Credential"].rsplit("/", 4)
        if key not in SECRET:
            raise Refusal(403, "InvalidAccessKeyId", "The access key does not exist.")
        names = parts["SignedHeaders"].split(";")
        path, _, query = self.path.partition("?")
        pairs = sorted(p if "=" in p else p + "=" for p in query.split("&")) if query else []
        request = "\n".join(
            [self.command, path, "&".join(pairs)]
            + [f"{n}:{' '.join(self.headers.get(n, '').split())}" for n in names]
            + ["", ";".join(names), self.headers["x-amz-content-sha256"]]
        )
        scope = f"{date}/{region}/{service}/{end}"
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope, hashlib.sha256(request.encode()).hexdigest()])
        signer = ("AWS4" + SECRET[key]).encode()
        for word in (date, region, service, end):
            signer = digest(signer, word)
        if not hmac.compare_digest(digest(signer, text).hex(), parts["Signature"]):
            raise Refusal(403, "SignatureDoesNotMatch", "Access denied.")
        own = [name.lower() for name in self.headers if name.lower().startswith(("x-amz-", "x-goog-"))]
        if any(name not in names or name.startswith("x-goog-") for name in own):
            raise Refusal(400, "ExcessHeaderValues", "Headers are mixed, or not signed.")
        signed_for = self.headers["x-amz-content-sha256"]
        if self.sent and signed_for != hashlib.sha256(self.sent).hexdigest():
            raise Refusal(400, "XAmzContentSHA256Mismatch", "The body is another one than was signed.")

    def check(self, bucket):
        words = self.headers.get("Authorization")
        if words is None:
            if bucket != "public":
                raise Refusal(401, "AuthenticationRequired", "Authentication required.")
        elif words == "Bearer short lived":
            if not self.is_first("short lived"):
                raise Refusal(401, "InvalidAuthentication", "The token has expired.")
        elif words.startswith("Bearer "):
            if words[7:] not in TOKENS:
                raise Refusal(401, "InvalidAuthentication", "Invalid Credentials")
            if any(name.lower().startswith("x-amz-") for name in self.headers):
                raise Refusal(400, "ExcessHeaderValues", "A token goes with headers of x-goog-.")
            self.check_md5()
        else:
            self.check_signature(words)

    def get(self):
        path, _, query = self.path.partition("?")
        if path == "/token":
            return self.token()
        if path.startswith("/computeMetadata/"):
            if self.headers.get("Metadata-Flavor") != "Google":
                return self.answer(403)
            token = "short lived" if self.is_first("token") else "ya29.machine"
            return self.json({"access_token": token, "expires_in": 3599})
        bucket, _, key = urllib.parse.unquote(path[1:]).partition("/")
        self.check(bucket)
        if bucket == "late":
            raise Refusal(403, "RequestTimeTooSkewed", "The difference between the request time and the server's is too large.")
        folder = os.path.join(FOLDER, bucket)
        if not os.path.isdir(folder):
            raise Refusal(404, "NoSuchBucket", "The specified bucket does not exist.")
        if "list-type=2" in query.split("&"):
            return self.listing(bucket, folder, dict(urllib.parse.parse_qsl(query)))
        asks = urllib.parse.parse_qs(query, keep_blank_values=True)
        if "uploads" in asks or "uploadId" in asks:
            return self.upload(bucket, key, asks)
        if self.command == "PUT":
            put_in_place(os.path.join(folder, key), [self.sent])
            return self.answer(200, b"", [("ETag", '"1"')])
        if not os.path.isfile(os.path.join(folder, key)):
            raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
        if self.command == "DELETE":
            os.remove(os.path.join(folder, key))
            return self.answer(204)
        return self.file(os.path.join(folder, key))

    def listing(self, bucket, folder, query):
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        keys = [k for k in keys_of(folder) if k.startswith(prefix) and k > after]
        if query.get("delimiter"):
            keys = [k for k in keys if "/" not in k[len(prefix) :]]
        body = "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>"
        for key in keys[:PAGE]:
            size = os.path.getsize(os.path.join(folder, key))
            body += f"<Contents><Key>{escape(key)}</Key><Generation>1</Generation><Size>{size}</Size></Contents>"
        more = len(keys) > PAGE
        body += f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        if more:
            body += f"<NextContinuationToken>{escape(keys[PAGE - 1])}</NextContinuationToken>"
        body = (body + "</ListBucketResult>").encode()
        return self.answer(200, body[: len(body) // 2] if bucket == "cut" else body)


serve(Google)
