"""Makes tests/files/records: TFRecord files by tensorflow and by the package tfrecord, archives by webdataset and Python's
tarfile. Needs tensorflow, tfrecord, webdataset, numpy, pillow. What they hold is said again in the specs."""
import io
import os
import subprocess
import sys
import tarfile

import numpy as np

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "records")
COUNT = 12


def values(i):
    """Of record i: raw bytes of a length of its own, an image of 2 x 3, numbers."""
    return {
        "raw": bytes((i * 7 + k) % 256 for k in range(i)),
        "image": bytes(i * 6 + k for k in range(6)),
        "label": i - 3,
        "large": [i * 2**40, -i],
        "weights": [i + 0.5, -0.25, 1e30],
    }


def write_tensorflow():
    import tensorflow as tf
    f = tf.train.Feature
    for name, compression in [("tensorflow.tfrecord", ""), ("gzip.tfrecord", "GZIP"), ("zlib.tfrecord", "ZLIB")]:
        with tf.io.TFRecordWriter(f"{HERE}/{name}", compression) as out:
            for i in range(COUNT):
                v = values(i)
                out.write(tf.train.Example(features=tf.train.Features(feature={
                    "raw": f(bytes_list=tf.train.BytesList(value=[v["raw"]])),
                    "image": f(bytes_list=tf.train.BytesList(value=[v["image"]])),
                    "label": f(int64_list=tf.train.Int64List(value=[v["label"]])),
                    "large": f(int64_list=tf.train.Int64List(value=v["large"])),
                    "weights": f(float_list=tf.train.FloatList(value=v["weights"])),
                })).SerializeToString(deterministic=True))


def write_tfrecord():
    import tfrecord
    out = tfrecord.TFRecordWriter(f"{HERE}/package.tfrecord")
    kinds = {"raw": "byte", "image": "byte", "label": "int", "large": "int", "weights": "float"}
    for i in range(COUNT):
        out.write({name: (value, kinds[name]) for name, value in values(i).items()})
    out.close()


def write_webdataset():
    import webdataset
    with webdataset.TarWriter(f"{HERE}/webdataset.tar", mtime=0) as out:
        for i in range(COUNT):
            out.write({"__key__": f"sample{i:04d}", "cls": i - 3, "txt": f"number {i}", "json": {"i": i},
                       "npy": np.arange(6, dtype=np.float32).reshape(2, 3) + i, "bin": values(i)["raw"]})


def write_tarfile():
    long = "folder/" + "long" * 60
    for name, kind in [("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)]:
        with tarfile.open(f"{HERE}/{name}.tar", "w", format=kind) as out:
            folder = tarfile.TarInfo("folder")
            folder.type = tarfile.DIRTYPE
            out.addfile(folder)
            for i in range(3):
                for field, data in [("cls", b"%d\n" % i), ("BIN", values(i + 5)["raw"])]:
                    stem = f"folder/{i}" if name == "ustar" else f"{long}{i}-\u00e9" if name == "pax" else f"{long}{i}"
                    member = tarfile.TarInfo(f"{stem}.{field}")
                    member.size = len(data)
                    member.mtime = 1.5 if name == "pax" else 1
                    out.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    os.makedirs(HERE, exist_ok=True)
    if len(sys.argv) > 1:
        globals()[sys.argv[1]]()
    else:  # each in a process of its own: tensorflow and tfrecord define the same protocol buffers
        for writer in ("write_tensorflow", "write_tfrecord", "write_webdataset", "write_tarfile"):
            subprocess.run([sys.executable, __file__, writer], check=True)
