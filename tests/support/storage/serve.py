"""What servers of specs have in common: parts of files, a log of what was asked, a free port of the loopback.

A server's main program is given FOLDER and WORK, and ends in `serve(Handler)`. It writes to WORK: `port`, `pid`, and a
line for each request to `log`: method, path with query, status, Range, Host.
"""

import email.utils
import hashlib
import hmac
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

FOLDER, WORK = sys.argv[1:3]
lock = threading.Lock()


class Refusal(Exception):
    def __init__(self, status, code, message, headers=()):
        super().__init__(code)
        self.status, self.code, self.message, self.headers = status, code, message, headers


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def keys_of(folder):
    """All files below it, as keys in the order of their bytes."""
    keys = []
    for root, _, names in os.walk(folder):
        keys += [os.path.relpath(os.path.join(root, name), folder) for name in names]
    return sorted(keys, key=lambda key: key.encode())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    form = "xml"  # of refusals

    def log_message(self, *_):
        pass

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status, body=b"", headers=()):
        with lock, open(os.path.join(WORK, "log"), "a") as log:
            log.write(f"{self.command} {self.path} {status} {self.headers.get('Range', '-')} {self.headers['Host']}\n")
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def json(self, value, status=200, headers=()):
        return self.answer(status, json.dumps(value).encode(), [("Content-Type", "application/json"), *headers])

    def refuse(self, no):
        if self.form == "json":
            return self.json({"error": no.message}, no.status, [("X-Error-Code", no.code), *no.headers])
        body = f"<?xml version='1.0'?><Error><Code>{no.code}</Code><Message>{escape(no.message)}</Message></Error>"
        return self.answer(no.status, body.encode(), [("Content-Type", "application/xml"), *no.headers])

    def do_GET(self):
        try:
            return self.get()
        except Refusal as no:
            return self.refuse(no)

    def file(self, path):
        """A file, or the part of it that is asked for."""
        with open(path, "rb") as file:
            data = file.read()
        wanted = self.headers.get("Range")
        tag = '"' + hashlib.md5(data).hexdigest() + '"'
        if self.headers.get("If-None-Match") == tag:
            return self.answer(304)
        first, last = (int(n) for n in wanted[6:].split("-")) if wanted else (0, len(data) - 1)
        if wanted and first >= len(data):
            raise Refusal(416, "InvalidRange", "The range specified is invalid for the current size of the resource.")
        part = data[first : last + 1]
        headers = [("ETag", tag), ("Last-Modified", email.utils.formatdate(os.path.getmtime(path), usegmt=True))]
        if wanted:
            headers.append(("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}"))
        return self.answer(206 if wanted else 200, part, headers)


def serve(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with open(os.path.join(WORK, "pid"), "w") as file:
        file.write(str(os.getpid()))
    with open(os.path.join(WORK, "port.new"), "w") as file:
        file.write(str(server.server_address[1]))
    os.rename(os.path.join(WORK, "port.new"), os.path.join(WORK, "port"))
    server.serve_forever()
