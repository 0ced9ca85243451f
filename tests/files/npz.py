"""Makes tests/files/npz: archives by numpy.savez and savez_compressed, and by Python's zipfile, which tests/dataset/npz_spec.lua
reads. What they hold is said again in the spec."""
import io
import os
import zipfile

import numpy as np

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "npz")
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64"]


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def main():
    os.makedirs(HERE, exist_ok=True)
    arrays = {t: np.arange(30).reshape(5, 2, 3).astype(t) for t in DTYPES}
    np.savez(f"{HERE}/stored.npz", **arrays)
    np.savez_compressed(f"{HERE}/deflated.npz", **arrays)
    np.savez(f"{HERE}/odd.npz", x=np.arange(4), scalar=np.int32(7), objects=np.array([{}, []], dtype=object),
             longer=np.arange(9), empty=np.zeros((0, 3), dtype="f4"))
    turned = {"fortran": np.asfortranarray(np.arange(24, dtype="<i4").reshape(4, 2, 3)),
              "big": np.arange(4, dtype=">i8"), "plain": np.arange(8, dtype="<f4").reshape(4, 2),
              "both": np.asfortranarray(np.arange(20, dtype=">f8").reshape(4, 5) / 4),
              "flags": np.asfortranarray(np.arange(8).reshape(4, 2) % 3 == 0), "scalar": np.array(7, dtype=">i4")}
    np.savez(f"{HERE}/turned.npz", **turned)
    np.savez_compressed(f"{HERE}/turned-deflated.npz", **turned)
    with zipfile.ZipFile(f"{HERE}/mixed.npz", "w") as out:
        out.comment = b"a comment, PK\5\6 and so on"
        out.writestr("readme.txt", "no array")
        out.writestr("a.npy", npy(np.arange(8, dtype="<i4").reshape(4, 2)))
        out.writestr("b.npy", npy(np.arange(4, dtype="<f8") / 4), zipfile.ZIP_DEFLATED)
        out.writestr("folder/c.npy", npy(np.arange(4, dtype="u1")))
    with zipfile.ZipFile(f"{HERE}/bzip2.npz", "w", zipfile.ZIP_BZIP2) as out:
        out.writestr("a.npy", npy(np.arange(4)))


if __name__ == "__main__":
    main()
