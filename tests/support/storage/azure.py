"""A server that speaks as Azure's Blob Storage does: python3 azure.py FOLDER WORK

FOLDER/CONTAINER/BLOB is a blob of the account "corpus", which stands in the path, as with Azurite. Requests have a SAS,
whose signature and end are looked at (sv, se, sp, sr=c), or are signed with the account's key; the signature is computed
here from what came. Those of the container "public" may have neither. Listings have PAGE blobs a page; that of "cut"
ends in the middle, "folders" has a directory among its blobs.
"""

import base64
import datetime
import os
import urllib.parse

from serve import FOLDER, Handler, Refusal, digest, escape, hmac, keys_of, serve

PAGE, ACCOUNT, KEY = 3, "corpus", base64.b64encode(b"the key of the account, as long as any").decode()
SAS_SECRET = "sas/signature+value="


class Azure(Handler):
    def check_key(self, path, query):
        words = self.headers["Authorization"]
        scheme, _, given = words.partition(" ")
        account, _, signature = given.partition(":")
        if scheme != "SharedKey" or account != ACCOUNT or not self.headers.get("x-ms-version"):
            raise Refusal(403, "AuthenticationFailed", "Server failed to authenticate the request.")
        names = ["Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date",
                 "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"]
        own = sorted(name.lower() for name in self.headers if name.lower().startswith("x-ms-"))
        text = "\n".join(
            [self.command] + [self.headers.get(name, "") for name in names] + [f"{n}:{self.headers[n]}" for n in own]
        )
        text += f"\n/{ACCOUNT}{path}" + "".join(f"\n{name.lower()}:{value}" for name, value in sorted(query.items()))
        right = base64.b64encode(digest(base64.b64decode(KEY), text)).decode()
        if not hmac.compare_digest(right, signature):
            raise Refusal(403, "AuthenticationFailed", "Server failed to authenticate the request. Make sure the value of "
                          "Authorization header is formed correctly including the signature.")

    def check_sas(self, query, lists):
        if query["sig"] != SAS_SECRET:
            raise Refusal(403, "AuthenticationFailed", "Signature did not match.")
        if query["se"] < datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"):
            raise Refusal(403, "AuthenticationFailed", "Signature not valid in the specified time frame")
        if lists and "l" not in query["sp"]:
            raise Refusal(403, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation.")

    def get(self):
        path, _, words = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(words, keep_blank_values=True))
        account, _, rest = urllib.parse.unquote(path[1:]).partition("/")
        container, _, blob = rest.partition("/")
        lists = query.get("comp") == "list"
        if "sig" in query:
            self.check_sas(query, lists)
        elif self.headers.get("Authorization"):
            self.check_key(path, query)
        elif container != "public":
            raise Refusal(404, "ResourceNotFound", "The specified resource does not exist.")
        folder = os.path.join(FOLDER, container)
        if account != ACCOUNT or not os.path.isdir(folder):
            raise Refusal(404, "ContainerNotFound", "The specified container does not exist.")
        if lists and query.get("restype") == "container":
            return self.listing(container, folder, query)
        if not os.path.isfile(os.path.join(folder, blob)):
            raise Refusal(404, "BlobNotFound", "The specified blob does not exist.")
        return self.file(os.path.join(folder, blob))

    def listing(self, container, folder, query):
        prefix, after = query.get("prefix", ""), query.get("marker", "")
        keys = [k for k in keys_of(folder) if k.startswith(prefix) and k >= after]
        if query.get("delimiter"):
            keys = [k for k in keys if "/" not in k[len(prefix) :]]
        body = f'\ufeff<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="{container}"><Blobs>'
        if container == "folders":
            body += "<Blob><Name>x/d.csv</Name><Properties><Content-Length>0</Content-Length><ResourceType>directory"
            body += "</ResourceType></Properties></Blob>"
        for key in keys[:PAGE]:
            size = os.path.getsize(os.path.join(folder, key))
            body += f"<Blob><Name>{escape(key)}</Name><Properties><Content-Length>{size}</Content-Length>"
            body += "<BlobType>BlockBlob</BlobType></Properties></Blob>"
        body += "</Blobs>"
        body += f"<NextMarker>{escape(keys[PAGE])}</NextMarker>" if len(keys) > PAGE else "<NextMarker />"
        body = (body + "</EnumerationResults>").encode()
        return self.answer(200, body[: len(body) // 2] if container == "cut" else body)


serve(Azure)
