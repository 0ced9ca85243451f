"""What servers of specs have in common: parts of files, a log of what was asked, a free port of the loopback.

A server's main program is given FOLDER and WORK, and ends in `serve(Handler)`. It writes to WORK: `port`, `pid`, and a
line for each request to `log`: method, path with query, status, Range, Host. Bodies must say how long they are. Objects
that are written are there whole or not at all; their ETags and metadata are kept.
"""

import base64
import email.utils
import hashlib
import hmac
import json
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

FOLDER, WORK = sys.argv[1:3]
lock = threading.Lock()
asked = set()  # what was asked for once
kept = {}  # path: ((size, time), ETag, headers of metadata)


class Refusal(Exception):
    def __init__(self, status, code, message, more="", headers=()):
        super().__init__(code)
        self.status, self.code, self.message, self.more, self.headers = status, code, message, more, headers


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def keys_of(folder):
    """All files below it, as keys in the order of their bytes."""
    keys = []
    for root, _, names in os.walk(folder):
        keys += [os.path.relpath(os.path.join(root, name), folder) for name in names]
    return sorted(keys, key=lambda key: key.encode())


def version_of(path):
    status = os.stat(path)
    return (status.st_size, status.st_mtime_ns)


def about(path):
    """The ETag and the metadata of an object."""
    version, tag, metadata = kept.get(path, (None, None, ()))
    if version != version_of(path):
        with open(path, "rb") as file:
            tag, metadata = '"' + hashlib.md5(file.read()).hexdigest() + '"', ()
        kept[path] = (version_of(path), tag, metadata)
    return tag, metadata


def put_in_place(path, parts, tag=None, metadata=()):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = os.path.join(WORK, f"object-{threading.get_ident()}")
    with open(new, "wb") as file:
        for part in parts:
            file.write(part)
    os.replace(new, path)
    kept.pop(path, None)
    if tag:
        kept[path] = (version_of(path), tag, metadata)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    form = "xml"  # of refusals

    def log_message(self, *_):
        pass

    def note(self, status):
        with lock, open(os.path.join(WORK, "log"), "a") as log:
            log.write(f"{self.command} {self.path} {status} {self.headers.get('Range', '-')} {self.headers['Host']}\n")

    def answer(self, status, body=b"", headers=(), length=None):
        self.note(status)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def json(self, value, status=200, headers=()):
        return self.answer(status, json.dumps(value).encode(), [("Content-Type", "application/json"), *headers])

    def xml(self, text, status=200, headers=()):
        text = '<?xml version="1.0" encoding="UTF-8"?>\n' + text
        return self.answer(status, text.encode(), [("Content-Type", "application/xml"), *headers])

    def refuse(self, no):
        if self.form == "json":
            return self.json({"error": no.message}, no.status, [("X-Error-Code", no.code), *no.headers])
        return self.xml(f"<Error><Code>{no.code}</Code><Message>{escape(no.message)}</Message>{no.more}</Error>",
                        no.status, no.headers)

    def is_first(self, what):
        with lock:
            is_first = what not in asked
            asked.add(what)
        return is_first

    def is_cut_off(self):
        """Whether this request is cut off in the middle of its body."""
        return False

    def cut_off(self):
        """As when the server dies: no answer, and the connection is reset."""
        self.note("reset")
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.rfile.close()
        self.connection.close()

    def do_POST(self):
        if "Content-Length" not in self.headers:
            return self.answer(411)
        size = int(self.headers["Content-Length"])
        if self.is_cut_off():
            self.rfile.read(size // 2)
            return self.cut_off()
        self.sent = self.rfile.read(size)
        if len(self.sent) == size:  # who sent it is still there
            self.answered()

    do_PUT = do_POST

    def do_GET(self):
        self.sent = b""
        self.answered()

    do_HEAD = do_DELETE = do_GET

    def answered(self):
        try:
            return self.get()
        except Refusal as no:
            return self.refuse(no)

    def check_md5(self):
        """What a server does that is told the body's MD5."""
        given = self.headers.get("Content-MD5")
        if self.sent and given is None:
            raise Refusal(400, "MissingContentMD5", "Here a body must have its Content-MD5.")
        if given is not None and given != base64.b64encode(hashlib.md5(self.sent).digest()).decode():
            raise Refusal(400, "InvalidDigest", "The Content-MD5 you specified is not that of the body.")

    def file(self, path):
        """A file, or the part of it that is asked for."""
        size, wanted = os.path.getsize(path), self.headers.get("Range")
        tag, metadata = about(path)
        if self.headers.get("If-None-Match") == tag:
            return self.answer(304)
        first, last = (int(n) for n in wanted[6:].split("-")) if wanted else (0, size - 1)
        if wanted and first >= size:
            raise Refusal(416, "InvalidRange", "The requested range is not satisfiable",
                          f"<ActualObjectSize>{size}</ActualObjectSize>")
        headers = [("ETag", tag), ("Last-Modified", email.utils.formatdate(os.path.getmtime(path), usegmt=True)), *metadata]
        if self.command == "HEAD":
            return self.answer(200, b"", headers, size)
        with open(path, "rb") as file:
            file.seek(first)
            part = file.read(last + 1 - first)
        if wanted:
            headers.append(("Content-Range", f"bytes {first}-{first + len(part) - 1}/{size}"))
        return self.answer(206 if wanted else 200, part, headers)


def serve(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with open(os.path.join(WORK, "pid"), "w") as file:
        file.write(str(os.getpid()))
    with open(os.path.join(WORK, "port.new"), "w") as file:
        file.write(str(server.server_address[1]))
    os.rename(os.path.join(WORK, "port.new"), os.path.join(WORK, "port"))
    server.serve_forever()
