"""What other programs compressed, in every way in which the parts of a file may be divided: makes tests/files/compressed
with Python 3.11's gzip and zlib and with zstandard 0.25 (libzstd 1.5.7).

    python3 -m venv env && env/bin/pip install zstandard==0.25.0 && env/bin/python tests/files/compressed.py
"""
import gzip
import io
import os
import struct

import zstandard

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compressed")
lines = [b'{"id": %d, "text": "%s", "x": [%d, %d]}\n' % (i, b"word " * (i * 7 % 23), i % 5, i % 11) for i in range(400)]
text = b"".join(lines)


def frame(data, **options):
    return zstandard.ZstdCompressor(level=5, **options).compress(data)


def streamed(data):
    """A frame that does not tell of its length."""
    out = io.BytesIO()
    with zstandard.ZstdCompressor(level=5).stream_writer(out, closefd=False) as writer:
        writer.write(data)
    return out.getvalue()


def seekable(parts):
    """Frames, and behind them the table of the seekable format, in a frame that is to be skipped."""
    frames = [frame(part, write_checksum=True) for part in parts]
    table = b"".join(struct.pack("<II", len(one), len(part)) for one, part in zip(frames, parts))
    footer = struct.pack("<IBI", len(frames), 0, 0x8F92EAB1)
    return b"".join(frames) + struct.pack("<II", 0x184D2A5E, len(table) + len(footer)) + table + footer


def skip(data):
    return struct.pack("<II", 0x184D2A50, len(data)) + data


def write(name, data):
    with open(os.path.join(FOLDER, name), "wb") as file:
        file.write(data)


parts = [b"".join(lines[i:i + 50]) for i in range(0, 400, 50)]
os.makedirs(FOLDER, exist_ok=True)
write("plain.jsonl", text)
write("one.gz", gzip.compress(text, mtime=0))
write("members.gz", b"".join(gzip.compress(part, mtime=0) for part in parts))
write("one.zst", frame(text, write_checksum=True))
write("streamed.zst", streamed(text))
write("frames.zst", b"".join(frame(part) for part in parts))
write("mixed.zst", skip(b"pzstd") + frame(parts[0]) + streamed(parts[1]) + skip(b"") + b"".join(map(frame, parts[2:])) + frame(b""))
write("seekable.zst", seekable(parts))
