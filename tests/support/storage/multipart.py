"""Uploads in parts, as S3 has them and Google (https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateMultipartUpload.html
and its siblings), for servers of specs. Parts but the last have PART_LEAST bytes or more. A bucket's name says what goes
wrong there:

  busy       each part is refused once: 503 SlowDown
  resets     the first request for each part is cut off in its middle
  hesitant   to complete an upload is answered by 200 and InternalError once
  unfinished the same always, with another error
  lost       an upload is completed, and no answer comes; nor does one to the first that begins
  kms        the same, and ETags are no MD5s, as where the server encrypts by keys of its customer
  replaced   as lost, and at once somebody else writes the object
  expires    the third part and those after it find that the token has expired
  hangs      the third part and those after it are not answered for a minute
  stalls     the first part of each object is not
  clings     the same as hangs, and no upload is ended for a minute
  belated    the third part comes in a quarter of a second after its upload was ended, and has it open again

It writes to WORK: `open`, which has a line "bucket/key id" for each open upload.
"""

import hashlib
import os
import re
import shutil
import time
import urllib.parse
from xml.sax.saxutils import escape, unescape

from serve import FOLDER, WORK, Refusal, about, lock, put_in_place

PART_LEAST = 5 << 20
uploads = {}  # id: (bucket, key, {number: (ETag, path)}, metadata)
reopened = set()  # ids of those that a part has opened anew


def note_uploads():
    with open(os.path.join(WORK, "open.new"), "w") as file:
        file.writelines(f"{bucket}/{key} {name}\n" for name, (bucket, key, _, _) in uploads.items())
    os.rename(os.path.join(WORK, "open.new"), os.path.join(WORK, "open"))


class Multipart:
    """Beside a Handler: `upload` answers a request whose query has "uploads" or "uploadId"."""

    metadata = "x-amz-meta-"  # how its headers begin

    def is_cut_off(self):
        return self.path.startswith("/resets/") and "partNumber=" in self.path and self.is_first(self.path)

    def upload(self, bucket, key, asks):
        if "uploads" in asks and self.command == "GET":
            return self.uploads_open(bucket, asks.get("prefix", [""])[0])
        if "uploads" in asks:
            return self.begin(bucket, key)
        name = asks["uploadId"][0]
        with lock:
            known = uploads.get(name)
        if not known or known[:2] != (bucket, key):
            raise Refusal(404, "NoSuchUpload", "The specified multipart upload does not exist.")
        if self.command == "DELETE":
            if bucket == "clings":
                time.sleep(60)
            self.end_upload(name)
            return self.answer(204)
        if self.command == "PUT":
            return self.part(bucket, key, name, known[2], int(asks["partNumber"][0]))
        return self.complete(bucket, name, os.path.join(FOLDER, bucket, key), known[2], known[3])

    def uploads_open(self, bucket, prefix):
        with lock:
            rows = "".join(
                f"<Upload><UploadId>{name}</UploadId><Key>{escape(k)}</Key></Upload>"
                for name, (b, k, _, _) in uploads.items()
                if b == bucket and k.startswith(prefix)
            )
        return self.xml(f"<ListMultipartUploadsResult>{rows}</ListMultipartUploadsResult>")

    def begin(self, bucket, key):
        name = f"up/{time.monotonic_ns()}+=="  # it has to be encoded
        metadata = [(n, v) for n, v in self.headers.items() if n.lower().startswith(self.metadata)]
        with lock:
            uploads[name] = (bucket, key, {}, metadata)
            note_uploads()
        if bucket == "lost" and self.is_first(self.path):
            return self.cut_off()
        return self.xml(
            f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
            f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
        )

    def end_upload(self, name):
        with lock:
            uploads.pop(name, None)
            note_uploads()
        shutil.rmtree(os.path.join(WORK, "parts", urllib.parse.quote(name, "")), ignore_errors=True)

    def part(self, bucket, key, name, parts, number):
        if bucket == "busy" and self.is_first(self.path):
            raise Refusal(503, "SlowDown", "Please reduce your request rate.")
        if bucket == "expires" and number > 2:
            raise Refusal(400, "ExpiredToken", "The provided token has expired.")
        stalls = bucket == "stalls" and self.is_first("stalls " + self.path.partition("?")[0])
        if stalls or bucket in ("hangs", "clings") and number > 2:
            time.sleep(60)
        while bucket == "belated" and number > 2 and name in uploads:
            time.sleep(0.01)
        if bucket == "belated" and name not in uploads and name not in reopened:
            time.sleep(0.25)
            with lock:
                reopened.add(name)
                uploads[name] = (bucket, key, parts, [])
                note_uploads()
        folder = os.path.join(WORK, "parts", urllib.parse.quote(name, ""))
        os.makedirs(folder, exist_ok=True)
        tag = '"' + hashlib.md5(self.sent + b"secret" * (bucket == "kms")).hexdigest() + '"'
        with open(os.path.join(folder, str(number)), "wb") as file:
            file.write(self.sent)
        with lock:
            if name not in uploads:
                raise Refusal(404, "NoSuchUpload", "The specified multipart upload does not exist.")
            parts[number] = (tag, file.name)
        return self.answer(200, b"", [("ETag", tag)])

    def complete(self, bucket, name, path, parts, metadata):
        if bucket == "unfinished" or bucket == "hesitant" and self.is_first(self.path):
            code = "InternalError" if bucket == "hesitant" else "InvalidPart"
            return self.xml(f"<Error><Code>{code}</Code><Message>We could not put it together.</Message></Error>")
        listed = re.findall(r"<Part><PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag></Part>", self.sent.decode())
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
        put_in_place(path, data, f'"{whole}-{len(listed)}"', metadata)
        self.end_upload(name)
        if bucket == "replaced":
            put_in_place(path, [b"somebody else's"])
        if bucket in ("lost", "kms", "replaced"):
            return self.cut_off()
        return self.xml(f"<CompleteMultipartUploadResult><ETag>{about(path)[0]}</ETag></CompleteMultipartUploadResult>")


note_uploads()
