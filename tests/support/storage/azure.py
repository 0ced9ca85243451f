"""A server that speaks as Azure's Blob Storage does: python3 azure.py FOLDER WORK

FOLDER/CONTAINER/BLOB is a blob of the account "corpus", which stands in the path, as with Azurite. Requests have a SAS,
whose signature and end are looked at (sv, se, sp, sr=c), or are signed with the account's key; the signature is computed
here from what came. Those of the container "public" may have neither. Listings have PAGE blobs a page; that of "cut"
ends in the middle, "folders" has a directory among its blobs, and that of "circle" goes on at one of two places, in
turn. It is also a proxy that lets nobody through, and logs who was asked for.

Blobs are written whole, or by blocks (https://learn.microsoft.com/rest/api/storageservices/put-block-list): those of a
blob have names of one length, and whoever commits a list throws all others away that were not committed. Bodies must
have their Content-MD5. A container's name says what goes wrong there:

  busy      each block is refused once: 503 ServerBusy
  resets    the first request for each block is cut off in its middle
  lost      a list of blocks is committed, and no answer comes to the first
  foreign   another program left a block with a name of another length
  stolen    between a list and its blocks somebody else wrote the blob
  expires   the third block and those after it find that the token has expired
  hangs     the third block and those after it are not answered for a minute
  stalls    the first block of each blob is answered after four seconds

It writes to WORK: `open`, which has a line "container/blob count" for each blob that has blocks which nobody committed.
"""

import base64
import datetime
import os
import re
import time
import urllib.parse

from serve import FOLDER, WORK, Handler, Refusal, about, digest, escape, hmac, keys_of, lock, put_in_place, serve

PAGE, ACCOUNT, KEY = 3, "corpus", base64.b64encode(b"the key of the account, as long as any").decode()
SAS_SECRET = "sas/signature+value="
new, old = {}, {}  # path: {id: bytes} of blocks, not committed and committed


def note_blocks():
    with open(os.path.join(WORK, "open.new"), "w") as file:
        file.writelines(f"{os.path.relpath(path, FOLDER)} {len(blocks)}\n" for path, blocks in new.items() if blocks)
    os.rename(os.path.join(WORK, "open.new"), os.path.join(WORK, "open"))


class Azure(Handler):
    def is_cut_off(self):
        return "/resets/" in self.path and "blockid=" in self.path and self.is_first(self.path)

    def do_CONNECT(self):
        self.close_connection = True
        return self.answer(403)

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
            [self.command]
            + [self.headers.get(name, "") if (name, self.headers.get(name)) != ("Content-Length", "0") else "" for name in names]
            + [f"{n}:{self.headers[n]}" for n in own]
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
        wanted = {"PUT": "w", "DELETE": "d"}.get(self.command, "l" if lists else "r")
        if wanted not in query["sp"]:
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
        self.check_md5()
        if self.command == "PUT":
            return self.put(container, os.path.join(folder, blob), query)
        if not os.path.isfile(os.path.join(folder, blob)):
            raise Refusal(404, "BlobNotFound", "The specified blob does not exist.")
        if self.command == "DELETE":
            os.remove(os.path.join(folder, blob))
            return self.answer(202)
        return self.file(os.path.join(folder, blob))

    def put(self, container, path, query):
        if query.get("comp") == "block":
            return self.block(container, path, query["blockid"])
        if query.get("comp") == "blocklist":
            return self.commit(container, path)
        if self.headers.get("x-ms-blob-type") != "BlockBlob":
            raise Refusal(400, "MissingRequiredHeader", "An HTTP header that's mandatory for this request is not specified.")
        with lock:
            new.pop(path, None)
            old.pop(path, None)
            note_blocks()
        put_in_place(path, [self.sent])
        return self.answer(201, b"", [("ETag", about(path)[0])])

    def block(self, container, path, name):
        if container == "busy" and self.is_first(self.path):
            raise Refusal(503, "ServerBusy", "The server is busy.")
        with lock:
            blocks = new.setdefault(path, {"eHh4": b"x"} if container == "foreign" else {})
            count = len(blocks)
        if container == "expires" and count >= 2:
            raise Refusal(403, "AuthenticationFailed", "Signature not valid in the specified time frame")
        if container == "stalls" and self.is_first("stalls " + path):
            time.sleep(4)
        if container == "hangs" and count >= 2:
            time.sleep(60)
        known = [*blocks, *old.get(path, {})]
        if len(base64.b64decode(name, validate=True)) > 64 or any(len(other) != len(name) for other in known):
            raise Refusal(400, "InvalidBlobOrBlock", "The specified blob or block content is invalid.")
        with lock:
            blocks[name] = self.sent
            note_blocks()
        return self.answer(201)

    def commit(self, container, path):
        names = re.findall(r"<Latest>([^<]*)</Latest>", self.sent.decode())
        if f"<BlockList>{''.join(f'<Latest>{n}</Latest>' for n in names)}</BlockList>" not in self.sent.decode():
            raise Refusal(400, "InvalidXmlDocument", "XML specified is not syntactically valid.")
        if container == "stolen":
            put_in_place(path, [b"somebody else's"])
            with lock:
                new.pop(path, None)
        with lock:
            there = old.get(path, {}) | new.get(path, {})
            if any(name not in there for name in names):
                raise Refusal(400, "InvalidBlockList", "The specified block list is invalid.")
            new.pop(path, None)
            old[path] = {name: there[name] for name in names}
            note_blocks()
        put_in_place(path, [there[name] for name in names])
        if container == "lost" and self.is_first(self.path):
            return self.cut_off()
        return self.answer(201, b"", [("ETag", about(path)[0])])

    def listing(self, container, folder, query):
        prefix, after = query.get("prefix", ""), query.get("marker", "")
        keys = [k for k in keys_of(folder) if k.startswith(prefix) and (k >= after or container == "circle")]
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
        if container == "circle":
            keys[PAGE] = "here" if after == "there" else "there"
        body += f"<NextMarker>{escape(keys[PAGE])}</NextMarker>" if len(keys) > PAGE else "<NextMarker />"
        body = (body + "</EnumerationResults>").encode()
        return self.answer(200, body[: len(body) // 2] if container == "cut" else body)


note_blocks()
serve(Azure)
