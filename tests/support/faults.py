"""A server of files that fails on purpose: python3 faults.py FOLDER WORK

The path says how: /FAULT[-TIMES][-NUMBER]/…/FILE. Each part of a file fails the first TIMES times that it is asked for
(left out: always). FAULT:

  status    answers NUMBER; 429 with "Retry-After: 1"
  drop      closes the connection in the middle of the body
  reset     closes it before it has answered
  short     sends half of what was asked for, and says so
  less      sends half of what it says that it sends, as if that were all
  more      sends more than it says
  other     sends other bytes than were asked for, and says so
  stall     sends half of the body, and then nothing
  slow      a byte every 50 ms
  silent    takes the request, and never answers
  changed   after TIMES requests for the file, it is another one (all bytes + 1), with another ETag
  gone      after TIMES requests for the file, it is no longer there
  dated     without ETag; as RFC 9110 says of If-Modified-Since, an older file is not modified
  unnamed   without ETag and Last-Modified
  late      answers after NUMBER ms; `in_flight` has how many it was answering at once, at most
  together  answers requests for what is not the file's first part only when NUMBER of them are there at once, or were,
            or after half a minute; `in_flight` has how many were, at most
  encoded   says that the body is compressed
  endless   sends the whole file, in chunks, without saying how long it is
  plain     does nothing wrong

It writes to WORK: `port`, `faults.pid`, `in_flight`, and a line for each request to `faults.log`: path, status, Range.
"""

import hashlib
import os
import re
import socket
import sys
import threading
import time
from email.utils import formatdate, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FOLDER, WORK = sys.argv[1:3]
lock = threading.Lock()
more_came = threading.Condition(lock)
asked = {}
flying = [0, 0]  # requests that are being answered late; the most


def count(key):
    with lock:
        asked[key] = asked.get(key, 0) + 1
        return asked[key]


def wait_late(wait):
    """Counts this request among those that are being answered late, while wait() lasts; the lock is held for it."""
    with lock:
        flying[0] += 1
        if flying[0] > flying[1]:
            flying[1] = flying[0]
            with open(os.path.join(WORK, "in_flight"), "w") as file:
                file.write(str(flying[1]))
        more_came.notify_all()
        wait()
        flying[0] -= 1


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self, status):
        with lock, open(os.path.join(WORK, "faults.log"), "a") as log:
            log.write(f"{self.path} {status} {self.headers.get('Range', '-')}\n")

    def refuse(self, status):
        body = b"no"
        self.note(status)
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self):
        self.close_connection = True
        self.wfile.flush()
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def do_GET(self):
        try:
            self.answer()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self):
        fault, times, number, name = re.match(r"/([a-z]+)(?:-(\d+))?(?:-(\d+))?/(.*)$", self.path).groups()
        times = int(times) if times else None
        path = os.path.join(FOLDER, name)
        if not os.path.isfile(path):
            return self.refuse(404)
        with open(path, "rb") as file:
            data = file.read()
        wanted = re.match(r"bytes=(\d+)-(\d+)$", self.headers.get("Range", ""))
        if fault == "late":
            wait_late(lambda: more_came.wait_for(lambda: False, int(number) / 1000))
        if fault == "together" and wanted and int(wanted[1]) > 0:
            wait_late(lambda: more_came.wait_for(lambda: flying[1] >= int(number), 30))
        fails = times is None or count((self.path, self.headers.get("Range"))) <= times
        if fault in ("changed", "gone"):
            fails = count(self.path) > (times or 0)
            if fails and fault == "gone":
                return self.refuse(404)
            if fails:
                data = bytes((b + 1) % 256 for b in data)
        if fault == "status" and fails:
            return self.refuse(int(number or 503))
        if fault == "reset" and fails:
            self.note(0)
            return self.hang_up()
        if fault == "silent" and fails:
            self.note(0)
            time.sleep(60)
            return self.hang_up()
        tag = '"' + hashlib.sha1(data).hexdigest() + '"'
        if fault != "unnamed" and self.headers.get("If-None-Match") == tag:
            self.note(304)
            self.send_response(304)
            self.end_headers()
            return None
        since = self.headers.get("If-Modified-Since")
        if fault == "dated" and since and parsedate_to_datetime(since).timestamp() >= int(os.path.getmtime(path)):
            self.note(304)
            self.send_response(304)
            self.end_headers()
            return None
        if fault == "endless":
            return self.send_chunks(data)
        first, last = 0, len(data) - 1
        if wanted:
            first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
        if fault == "short" and fails:
            last = (first + last) // 2
        if fault == "other" and fails:
            first, last = first + 1, last
        body = data[first : last + 1]
        if fault == "less" and fails:
            body = body[: len(body) // 2]
        if fault == "more" and fails:
            body += bytes(1 << 21)
        self.note(206 if wanted else 200)
        self.send_response(206 if wanted else 200)
        if fault == "dated":
            self.send_header("Last-Modified", formatdate(os.path.getmtime(path), usegmt=True))
        elif fault != "unnamed":
            self.send_header("ETag", tag)
        if fault == "encoded":
            self.send_header("Content-Encoding", "gzip")
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = len(body) // 2
        if fault == "drop" and fails:
            self.wfile.write(body[:half])
            return self.hang_up()
        if fault == "stall" and fails:
            self.wfile.write(body[:half])
            self.wfile.flush()
            time.sleep(60)
            return self.hang_up()
        if fault == "slow" and fails:
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.05)
            return None
        self.wfile.write(body)
        return None

    def send_chunks(self, data):
        self.note(200)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(data), 1000):
            chunk = data[at : at + 1000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
for name, value in (("faults.pid", os.getpid()), ("port", server.server_port)):
    with open(os.path.join(WORK, name + ".new"), "w") as out:
        out.write(f"{value}\n")
    os.rename(os.path.join(WORK, name + ".new"), os.path.join(WORK, name))
server.serve_forever()
