"""A server that speaks as Google Cloud Storage does where it is as S3: python3 google.py FOLDER WORK

FOLDER/BUCKET/KEY is an object. Requests have one of TOKENS, or a signature of a key of HMAC, which is computed here from
what came; those of the bucket "public" may have neither. Tokens are given by /token (for a user's refresh token, or a
service account's statement, whose signature `openssl` checks by WORK/public.pem) and by /computeMetadata/…, where the
first one is "short lived": it holds for one request of an object. Listings have PAGE objects a page; that of the bucket
"cut" ends in the middle. Of "late" the clock is another one.
"""

import base64
import json
import os
import subprocess
import urllib.parse

from serve import FOLDER, WORK, Handler, Refusal, digest, escape, hashlib, hmac, keys_of, lock, serve

PAGE = 3
TOKENS = {"ya29.user", "ya29.account", "ya29.machine", "ya29.given"}
SECRET = {"GOOG1EXAMPLE": "hmac/secret+value"}
used = set()


def unpadded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Google(Handler):
    def do_POST(self):
        form = dict(urllib.parse.parse_qsl(self.body().decode()))
        if self.path != "/token":
            return self.answer(404)
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
            return self.json({"access_token": "ya29.account", "expires_in": 3599})
        return self.json({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400)

    def is_first(self, what):
        with lock:
            is_first = what not in used
            used.add(what)
        return is_first

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
        else:
            self.check_signature(words)

    def get(self):
        path, _, query = self.path.partition("?")
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
        if not os.path.isfile(os.path.join(folder, key)):
            raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
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
