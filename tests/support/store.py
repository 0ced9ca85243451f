"""A server of files that is as far away and as busy as an object store: python3 store.py FOLDER WORK [OPTION=NUMBER …]

  latency=20     milliseconds from a request to its answer
  rate=100000000 bytes of bodies a second, of all connections together; 0: as many as there are
  fail=50        one request in so many for a part of a file fails, in turn by a status of 503 with Retry-After: 0, a
                 connection that is closed, other bytes than were asked for, a body that ends in the middle
  hang=1         a request for the file "hang" is never answered

It holds thousands of connections. GET /-/counts is answered at once with what it counted since it was asked before:
"requests BYTES-OF-BODIES connections most-at-once failed". It writes `port` and `pid` to WORK, and to `log`
a line for each request: path, status, Range, bytes of the body that were sent.
"""

import asyncio
import hashlib
import mmap
import os
import resource
import sys
import urllib.parse

FOLDER, WORK = sys.argv[1:3]
OPTIONS = {"latency": 0.0, "rate": 0.0, "fail": 0.0} | {
    name: float(value) for name, value in (word.split("=") for word in sys.argv[3:])
}
CHUNK = 1 << 18
FAULTS = ("503", "reset", "other", "less")


class Server:
    def __init__(self):
        self.files = {}
        self.free = 0.0  # when the line is free again
        self.parts = 0
        self.flying = 0
        self.log = open(os.path.join(WORK, "log"), "a", buffering=1)
        self.begin_count()

    def begin_count(self):
        self.requests = self.bytes = self.connections = self.most = self.failed = 0

    def file(self, path):
        """The bytes of a file and its ETag, as they are now; None: there is none."""
        full = os.path.join(FOLDER, urllib.parse.unquote(path).lstrip("/"))
        if not os.path.isfile(full):
            return None
        about = os.stat(full)
        key = (about.st_mtime_ns, about.st_size, about.st_ino)
        if self.files.get(full, (None,))[0] != key:
            data = memoryview(b"")
            if about.st_size:
                with open(full, "rb") as opened:
                    data = memoryview(mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ))
            tag = '"' + hashlib.sha1(repr((full, key)).encode()).hexdigest()[:24] + '"'
            self.files[full] = (key, data, tag)
        return self.files[full][1:]

    async def send(self, writer, body):
        for at in range(0, len(body), CHUNK):
            chunk = body[at : at + CHUNK]
            if OPTIONS["rate"]:
                now = asyncio.get_running_loop().time()
                self.free = max(self.free, now) + len(chunk) / OPTIONS["rate"]
                await asyncio.sleep(self.free - now)
            writer.write(chunk)
            self.bytes += len(chunk)
            await writer.drain()

    async def answer(self, writer, path, status, head=(), body=b"", length=None, wanted="-"):
        self.log.write(f"{path} {status} {wanted} {len(body)}\n")
        lines = [f"HTTP/1.1 {status} X", *head, f"Content-Length: {len(body) if length is None else length}"]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await self.send(writer, body)
        await writer.drain()

    async def take(self, writer, path, headers):
        """Answers one request; False: the connection is to be closed."""
        if path == "/-/counts":
            text = f"{self.requests} {self.bytes} {self.connections} {self.most} {self.failed}\n"
            self.begin_count()
            await self.answer(writer, path, 200, body=text.encode())
            self.begin_count()
            return True
        self.requests += 1
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            await asyncio.sleep(OPTIONS["latency"] / 1000)
            if path.endswith("/hang"):
                await asyncio.sleep(3600)
            return await self.take_part(writer, path, headers)
        finally:
            self.flying -= 1

    async def take_part(self, writer, path, headers):
        found, wanted = self.file(path), headers.get("range")
        if found is None:
            await self.answer(writer, path, 404, body=b"no")
            return True
        data, tag = found
        if headers.get("if-none-match") == tag:
            await self.answer(writer, path, 304)
            return True
        if not wanted:
            await self.answer(writer, path, 200, [f"ETag: {tag}"], data)
            return True
        first, last = (int(n) for n in wanted.removeprefix("bytes=").split("-"))
        last = min(last, len(data) - 1)
        if first >= len(data):
            await self.answer(writer, path, 416, [f"Content-Range: bytes */{len(data)}"])
            return True
        self.parts += 1
        fault = None
        if OPTIONS["fail"] and self.parts % int(OPTIONS["fail"]) == 0:
            fault = FAULTS[self.parts // int(OPTIONS["fail"]) % len(FAULTS)]
            self.failed += 1
        if fault == "503":
            await self.answer(writer, path, 503, ["Retry-After: 0"], b"busy", wanted=wanted)
            return True
        if fault == "reset":
            self.log.write(f"{path} 0 {wanted} 0\n")
            return False
        if fault == "other":
            first = first + 1 if first < last else first
            last = last if first > 0 else last - 1
        body = data[first : last + 1]
        head = [f"ETag: {tag}", f"Content-Range: bytes {first}-{last}/{len(data)}"]
        cut = len(body) // 2 if fault == "less" else len(body)
        await self.answer(writer, path, 206, head, body[:cut], len(body), wanted)
        return fault != "less"

    async def connected(self, reader, writer):
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                headers = dict((n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines[1:]))
                if not await self.take(writer, lines[0].split(" ")[1], headers):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


async def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384) if hard > 0 else 16384, hard))
    server = Server()
    listening = await asyncio.start_server(server.connected, "127.0.0.1", 0, backlog=4096)
    port = listening.sockets[0].getsockname()[1]
    for name, value in (("pid", os.getpid()), ("port", port)):
        with open(os.path.join(WORK, name + ".new"), "w") as out:
            out.write(f"{value}\n")
        os.rename(os.path.join(WORK, name + ".new"), os.path.join(WORK, name))
    await listening.serve_forever()


asyncio.run(main())
