#!/usr/bin/env python3
"""Makes the seeds in tests/fuzz/corpus from the files in tests/files, with h5py (any Python that has it) for HDF5:

    python3 -m venv env && env/bin/pip install h5py && env/bin/python tests/fuzz/seeds.py

Inputs that once failed lie beside them under the name of what was wrong; this leaves them alone.
"""
import gzip
import io
import json
import os
import struct
import tarfile
import zlib

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "files")
BETWEEN = b"\n--8<--\n"


def slurp(name):
    with open(os.path.join(DATA, name), "rb") as file:
        return file.read()


def seed(target, name, data):
    folder = os.path.join(HERE, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def npy():
    for name in ["bool", "float64", "fortran", "big", "shape0", "shape2", "shape3", "structured", "version2", "version3"]:
        seed("npy", name, slurp(name + ".npy"))


def idx(kind, sizes, payload):
    return struct.pack(">HBB", 0, kind, len(sizes)) + struct.pack(f">{len(sizes)}I", *sizes) + payload


def idx_and_gzip():
    images, numbers = idx(8, [3, 2, 2], bytes(range(12))), idx(12, [4], struct.pack(">4i", 1, -2, 3, 4))
    for target in ["idx", "gzip"]:
        seed(target, "images", images)
        seed(target, "numbers", numbers)
    seed("gzip", "compressed", gzip.compress(images, mtime=0))
    seed("gzip", "two-members", gzip.compress(images[:9], mtime=0) + gzip.compress(images[9:], mtime=0))
    text = b"what is said three times is true. " * 3
    seed("inflate", "zlib", b"\x02" + zlib.compress(text))
    seed("inflate", "gzip", b"\x02" + gzip.compress(text, mtime=0))
    seed("inflate", "more-than-room", b"\x01" + zlib.compress(text))
    seed("inflate", "stored", b"\x02" + zlib.compress(text, 0))


def records():
    for name in ["tensorflow", "package", "gzip", "zlib"]:
        seed("tfrecord", name, slurp(f"records/{name}.tfrecord"))
    for name in ["brotli-1", "brotli-4", "zstd-1", "zstd-4", "snappy-4", "uncompressed-1", "uncompressed-4", "examples",
                 "none", "empty-records", "transposed"]:
        data = gzip.decompress(slurp(f"array_record/{name}.array_record.gz"))
        seed("array_record", name, data[:-65536].rstrip(b"\0") + BETWEEN + data[-65536:].rstrip(b"\0"))


def archive(form, names, **more):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, **more) as tar:
        for i, name in enumerate(names):
            member = tarfile.TarInfo(name)
            member.size = i + 1
            tar.addfile(member, io.BytesIO(b"0123456789"[:i + 1]))
    data = out.getvalue().rstrip(b"\0")
    return data.ljust((len(data) + 511) // 512 * 512 + 1024, b"\0")


def tar():
    names = ["a.cls", "a.txt", "b.cls", "b.txt"]
    long = ["long" * 40 + "/" + name for name in names]
    seed("tar", "ustar", archive(tarfile.USTAR_FORMAT, names))
    seed("tar", "gnu-long", archive(tarfile.GNU_FORMAT, long))
    seed("tar", "pax-long", archive(tarfile.PAX_FORMAT, long))
    seed("tar", "pax-global", archive(tarfile.PAX_FORMAT, names, pax_headers={"comment": "global"}))


def mds():
    for name in ["raw", "scalars", "hashes", "pickle"]:
        seed("mds", name, slurp(f"mds/{name}/index.json") + BETWEEN + slurp(f"mds/{name}/shard.00000.mds"))
    for name in ["raw", "zstd"]: # with one shard the whole is read
        index = json.loads(slurp(f"mds/{name}/index.json"))
        index["shards"] = index["shards"][:1]
        parts = [json.dumps(index).encode()]
        parts += [slurp("mds/raw/shard.00000.mds")] if name == "raw" else [b"", slurp("mds/zstd/shard.00000.mds.zstd")]
        seed("mds", name + "-one", BETWEEN.join(parts))
    index = json.loads(slurp("mds/pictures/index.json")) # of pixels, and of lists of images
    index["shards"] = index["shards"][:1]
    seed("mds", "pictures", json.dumps(index).encode() + BETWEEN + slurp("mds/pictures/shard.00000.mds"))


def arrays():
    tar = tarfile.open(os.path.join(DATA, "arrays.tar.gz"))
    names = sorted(tar.getnames())
    for name in names:
        kind = name.split("/")[-1]
        if kind not in (".zarray", "zarr.json") or not name.startswith("zarr/"):
            continue
        array = name.split("/")[1]
        chunks = [n for n in names if n.startswith(f"zarr/{array}/") and tar.getmember(n).isfile()
                  and n.split("/")[-1] not in (".zarray", ".zattrs", "zarr.json")]
        parts = [tar.extractfile(n).read() for n in [name] + chunks[:1]]
        seed("zarr", array, BETWEEN.join(parts))


def parquet():
    for name in ["refused", "int96", "duckdb"]:
        seed("parquet", name, slurp(f"parquet/{name}.parquet"))
    for name in ["plain", "dictionary", "pages", "statistics"]:
        seed("parquet", name, slurp(f"parquet/small/{name}.parquet"))


def arrow():
    for name in ["plain.arrow", "plain.arrows", "zstd.arrow", "zstd.arrows"]:
        seed("arrow", name, slurp(f"arrow/small/{name}"))
    seed("arrow", "refused", slurp("arrow/refused.arrow"))


def hdf5_file(**options):
    out = io.BytesIO()
    with h5py.File(out, "w", libver=options.pop("libver", "earliest")) as file:
        file.create_dataset("data", data=np.arange(30, dtype=options.pop("dtype", "<f4")).reshape(5, 6), **options)
    return out.getvalue()


def hdf5():
    seed("hdf5", "plain", hdf5_file())
    seed("hdf5", "big", hdf5_file(dtype=">i2"))
    seed("hdf5", "chunked", hdf5_file(chunks=(2, 4)))
    seed("hdf5", "gzip", hdf5_file(chunks=(2, 4), compression="gzip", shuffle=True))
    seed("hdf5", "fletcher", hdf5_file(chunks=(2, 4), fletcher32=True, fillvalue=7))
    seed("hdf5", "latest", hdf5_file(chunks=(2, 4), libver="latest"))


def megatron():
    for i in range(3):
        seed("megatron", f"set-{i}", slurp(f"megatron/{i}.idx") + BETWEEN + slurp(f"megatron/{i}.bin"))
    tokens = struct.pack("<5H", 1, 2, 3, 4, 5)
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3)
    for name, pointers in [("small", (0, 4)), ("apart", (4, 0)), ("outside", (0, 6)), ("odd", (0, 3))]:
        seed("megatron", name, head + struct.pack("<2i2q3q", 2, 3, *pointers, 0, 1, 2) + BETWEEN + tokens)
    seed("megatron", "no-documents", head[:26] + bytes(8) + struct.pack("<2i2q", 2, 3, 0, 4) + BETWEEN + tokens)


def safetensors(arrays, data):
    header = json.dumps(arrays).encode()
    return struct.pack("<Q", len(header)) + header + data


def text():
    seed("safetensors", "two", safetensors({
        "a": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]},
        "b": {"dtype": "I64", "shape": [3], "data_offsets": [24, 48]}}, bytes(range(48))))
    seed("safetensors", "metadata", safetensors({
        "__metadata__": {"format": "pt"}, "w": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]},
        "s": {"dtype": "U8", "shape": [], "data_offsets": [8, 9]}}, bytes(range(9))))
    seed("csv", "numbers", b"id,x,flag\n1,2.5,true\n-3,1e-7,false\n40,inf,true\n")
    seed("csv", "quoted", b'a,"b ""c""",d\r\n"one\r\ntwo",2,"x,y"\r\n,"",3\r\n')
    seed("csv", "semicolons", b"1;2;three\n4;5;six\n")
    seed("json", "nested", b'{"l1":[1,"a\\u00e9\\ud83d\\ude00",null,{"x":1}],"s":[{},[],true,1e5],"n":12345678901}')
    seed("json", "list", b'[1,[2,[3,{"a":"b\\n"}]],false]')
    seed("jsonl", "mixed", b'{"id":1,"x":[1.5,2],"ok":true,"text":"a\\u00e9"}\n{"id":-2,"x":[3,4e5],"ok":false,"text":""}\n')
    for name in ["members.gz", "mixed.zst", "streamed.zst"]:
        seed("jsonl", name, slurp("compressed/" + name))
    seed("csv", "gzip", gzip.compress(b"a,b\n1,2\n", mtime=0))
    seed("jsonl", "nested", b'{"box":[[1,2],[3,4]],"id":0}\r\n\r\n{"id":1,"box":[[5,6],[7,8]],"more":{"a":[]}}')
    for name in ["int32", "shape1", "uint8"]:
        seed("bytes", name, slurp(name + ".npy"))
    seed("bytes", "text", "Grüße, 世界 🙂".encode())
    tokens = np.arange(64, dtype="<u2").tobytes()
    seed("tokens", "bare", tokens)
    for magic, version, size in [(20240520, 1, 2), (20240801, 7, 4)]:
        header = struct.pack("<3i", magic, version, len(tokens) // size).ljust(1024, b"\0")
        seed("tokens", f"llm.c-{size}", header + tokens)


def refused():
    """What is another format, or a part of one that is not read: each is to be an error, and nothing else."""
    zeros = b"\0" * 40
    arrow = struct.pack("<IiI", 0xffffffff, 24, 16)
    for name, head in [("npy", slurp("int32.npy")), ("arrow-stream", arrow), ("parquet", b"PAR1\x15\x04"),
                       ("megatron-index", b"MMIDIDX\0\0\1"), ("text", b"some words of a text. " * 9),
                       ("safetensors", struct.pack("<Q", 16) + b'{"x":'), ("pickle", b"\x80\4\x95\x10" + bytes(7))]:
        seed("tokens", name, head + zeros)
    seed("csv", "mixed-quotes", b'a,b\r"x"y,"x""y"z"\r\n5" pipe,"1"2\n')
    seed("csv", "ragged", b"a,b\n1,2\n3\n4,5,6\n7,\n")
    seed("csv", "utf-16", "a,b\n1,2\n".encode("utf-16"))
    seed("jsonl", "text-then-list", b'{"x":"abc"}\n{"x":[97,98]}\n{"x":1}\n')
    for name in ["sums", "numbers"]:
        seed("mds", name, slurp(f"mds/{name}/index.json") + BETWEEN + slurp(f"mds/{name}/shard.00000.mds"))
    seed("mds", "unknown-hash", slurp("mds/numbers/index.json").replace(b'"sha1": ', b'"whirlpool": ') + BETWEEN +
         slurp("mds/numbers/shard.00000.mds"))

    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    def record(*data):  # the target puts the checksums right
        return b"".join(struct.pack("<QI", len(d), 0) + d + bytes(4) for d in data)
    one, two = (field(1, field(1, b"x") + field(2, field(1, b"".join(field(1, t) for t in texts))))
                for texts in [[b"one"], [b"one", b"two"]])
    ints = field(1, field(1, b"x") + field(2, field(3, b"\x08\x05")))
    seed("tfrecord", "several-strings", record(field(1, one), field(1, two)))
    seed("tfrecord", "other-kind", record(field(1, ints), field(1, one)))
    seed("tfrecord", "merged", record(field(1, ints) + field(1, one)))
    seed("tfrecord", "sequence", record(field(1, ints) + field(2, field(1, field(1, b"s") + field(2, b"")))))


def index(kind, columns, rows):
    """As runtime/dataset/index_file.h has it; the target fills in what must fit the file."""
    names = b"".join(name + b"\0" for name in columns)
    entries = b"".join(struct.pack("<qqII", *entry) for row in rows for entry in row)
    return entries + names + kind.ljust(48, b"\0") + struct.pack("<qqqiIII8s", 0, 0, len(rows), len(columns), len(names),
                                                                   0, 0, b"shrdidx2")


def indexes():
    seed("index", "tfrecord", index(b"tfrecord", [b"record"], [[(0, 5, 0, 0)], [(8, 4, 0, 0)]]))
    seed("index", "tar", index(b"tar 2", [b"cls", b"txt"], [[(0, 2, 0, 0), (4, 3, 0, 0)], [(8, 1, 0, 0), (-1, 0, 0, 0)]]))
    seed("index", "csv", index(b"csv , with a header", [b"line"], [[(4, 5, 0, 0)], [(10, 3, 0, 0)], [(14, 5, 0, 0)]]))


def images():
    for kind, end, names in [
            ("jpeg", "jpg", ["420", "420-progressive", "420-restart", "arithmetic", "cmyk", "grey", "one", "small", "ycck"]),
            ("png", "png", ["basn0g01", "basn2c16", "basn3p04", "basn4a08", "basn6a16", "ibasn0g08", "ibasn6a08",
                            "tbbn2c16", "tp1n3p08", "rgb"]),
            ("webp", "webp", ["alpha", "grey", "lossless", "lossless-alpha", "moving", "moving-part", "one", "palette",
                              "small", "simple-filter", "turned"])]:
        for name in names:
            path = f"images/{kind}/{name}.{end}"
            if os.path.exists(os.path.join(DATA, path)):
                seed(kind, name, slurp(path))


def audio():
    for name in ["alaw.wav", "ima_adpcm.wav", "layer3.mp3", "loud.wav", "ms_adpcm.wav", "one.wav", "pcm_s8.flac",
                 "pcm_u8.wav", "rf64.wav", "six.wav", "vorbis.ogg"]:
        seed("audio", name, slurp(f"audio/{name}"))


def npz_and_cifar():
    seed("npz", "mixed", slurp("npz/mixed.npz"))
    seed("npz", "odd", slurp("npz/odd.npz"))
    seed("cifar", "ten", slurp("cifar/data_batch_1.bin")[:3073])
    seed("cifar", "hundred", slurp("cifar/train.bin")[:3074])


def tokenizer(pre_tokenizer, merges, **others):
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u0120": 2, "ab": 3, "\u0120a": 4, "1": 5}, "merges": merges}
    file = {"added_tokens": [], "normalizer": None, "pre_tokenizer": pre_tokenizer, "model": model, **others}
    return json.dumps(file).encode() + BETWEEN + "ab a b<|end|> 12 \u00e9e\u0301 ab".encode()


def tokenizers():
    golden = os.path.join(HERE, "..", "golden", "tokenize")
    llama3 = json.load(open(os.path.join(golden, "llama3.json")))["pre_tokenizer"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}
    digits = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]}
    added = [{"id": 9, "content": "<|end|>", "lstrip": True, "rstrip": True, "special": True},
             {"id": 10, "content": "e\u0301", "single_word": True, "normalized": True}]
    seed("tokenizer", "byte-level", tokenizer(byte_level, ["a b", "\u0120 a"]))
    seed("tokenizer", "digits", tokenizer(digits, [["a", "b"]]))
    seed("tokenizer", "split", tokenizer(llama3, [], normalizer={"type": "NFC"}, added_tokens=added))
    with open(os.path.join(golden, "ranks.tiktoken"), "rb") as file:
        seed("tokenizer", "ranks", file.read() + BETWEEN + b"hello  world's 123\r\n")
    text = "Hello  world's\r\n \t1234 <|end|> word caf\u00e9 e\u0301 \u4e16\u754c \U0001f642<pad> \u00a0//\n".encode()
    for kind in range(15):  # tests/fuzz/targets/tokenize.c
        seed("tokenize", f"kind-{kind}", bytes([kind]) + text)


def restart():
    """Tables of places in a gzipped file: their footers are made to fit by the target."""
    def table(*points):
        return b"".join(struct.pack("<3Q4I", *point) for point in points) + struct.pack("<6Q2I8s", 0, 0, 0, len(points) - 1,
                                                                                       0, 0, 0, 0, b"")
    seed("restart", "one", table((0, 0, 0, 0, 0, 0, 0)))
    seed("restart", "three", table((0, 0, 0, 0, 0, 0, 0), (10, 0, 0, 0, 0, 1, 0), (4000, 7000, 0, 0, 3, 1, 0)))
    window = zlib.compress(bytes(1000))
    window += bytes(-len(window) % 8)
    seed("restart", "window", window + table((0, 0, 0, 0, 0, 0, 0), (4000, 9000, 0, len(window), 5, 1, 0)))


def service():
    """What S3 answers, and those who give credentials: tests/fuzz/targets/service.c has how they follow one another."""
    def page(*objects, more=""):
        contents = "".join(f"<Contents><Key>{key}</Key><Size>{size}</Size></Contents>" for key, size in objects)
        goes_on = str(bool(more)).lower()
        return (f"200\n<ListBucketResult><EncodingType>url</EncodingType>{contents}<IsTruncated>{goes_on}</IsTruncated>"
                f"{more}</ListBucketResult>").encode()

    def refusal(status, code, region=""):
        return f"{status} {region}\n<Error><Code>{code}</Code><Message>It is so</Message></Error>".encode()

    given = b'200\n{"AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T", "Expiration": "2020-01-01T00:00:00Z"}'
    sts = (b"200\n<Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>S</SecretAccessKey><SessionToken>T"
           b"</SessionToken><Expiration>2020-01-01T00:00:00Z</Expiration></Credentials>")
    more = "<NextContinuationToken>a&amp;b&#61;</NextContinuationToken>"
    two, last = page(("web/part%20a+b", 1), ("web/part &lt;&#x41;", 2), more=more), page(("web/part", 3))
    profile = (b"[default]\naws_access_key_id = A\naws_secret_access_key=S\nregion = eu-west-1\n"
               b"endpoint_url = http://x\n")
    token = b"token\n"
    blob = "<Blob><Name{}>{}</Name><Properties><Content-Length>{}</Content-Length>{}</Properties></Blob>"
    blobs = blob.format("", "web/part 1", 5, "") + blob.format(
        ' Encoded="true"', "web%2Fpart%202", 6, "<ResourceType>directory</ResourceType>")

    def azure(marker):
        return f"200\n<EnumerationResults><Blobs>{blobs}</Blobs>{marker}</EnumerationResults>".encode()

    commit = b'200\n{"sha": "0123456789012345678901234567890123456789"}'
    files = b'[{"type": "file", "path": "web/a.parquet", "size": 5}, {"type": "directory", "path": "web"}]'
    user = b'{"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c"}'
    boto = b"[Credentials]\ngs_access_key_id = A\ngs_secret_access_key = S\n"
    for name, parts in {
        "azure": [b"\x27", azure("<NextMarker>m</NextMarker>"), azure("<NextMarker/>"), azure("<NextMarker/>"),
                  refusal(403, "AuthenticationFailed")],
        "hub": [b"\x37token\n", commit, b"200 - https://h/api?cursor=abc\n" + files, b"200\n" + files,
                b"404 RepoNotFound\n"],
        "google": [b"\x15" + user, b'200\n{"access_token": "t", "expires_in": 3599}', two, last],
        "google-boto": [b"\x16" + boto, last],
        "pages": [b"\0", two, last, page()],
        "refusals": [b"\0", refusal(503, "SlowDown"), refusal(301, "PermanentRedirect", "eu-west-1"), last,
                     refusal(403, "AccessDenied")],
        "json-refusal": [b"\0", b'404 \n{"error": "no such thing", "message": "none"}'],
        "profile": [b"\1" + profile, last, refusal(400, "ExpiredToken"), page()],
        "web-identity": [b"\2" + token, sts, last],
        "container": [b"\3" + token, given, last, refusal(403, "InvalidAccessKeyId")],
        "instance": [b"\4", b"200\nsession", b"200\nrole\n", given, two, last],
    }.items():
        seed("service", name, BETWEEN.join(parts))


for make in [npy, idx_and_gzip, records, tar, mds, megatron, arrays, hdf5, parquet, arrow, text, refused, indexes, images,
             audio, npz_and_cifar, tokenizers, restart, service]:
    make()
