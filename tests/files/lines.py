"""Makes tests/files/lines: lines of JSON by Python's json, and what their numbers are to the bit, by exact fractions."""
import json
import os
import random
from fractions import Fraction

import numpy as np

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lines")
COUNT = 48


def nearest(text, bits, least):
    """The decimal's nearest number of `bits` significant bits that is a multiple of 2^least; ties go to even."""
    x = abs(Fraction(text))
    if x == 0:
        return 0.0
    exponent = least
    while x >= Fraction(2) ** (exponent + bits):
        exponent += 1
    scaled = x / Fraction(2) ** exponent
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1):
        whole += 1
    return float(Fraction(whole) * Fraction(2) ** exponent) * (-1 if text[0] == "-" else 1)


def tie(rng, bits, exponent, off):
    """A decimal half-way between two floats of `bits` bits, or a little beside that."""
    whole = 2 ** (bits - 1) + rng.randrange(2 ** (bits - 1))
    x = (Fraction(whole) + Fraction(1, 2)) * Fraction(2) ** exponent
    digits = 60
    n = x * 10**digits
    assert n.denominator == 1
    n = int(n) + off
    text = str(n).rjust(digits + 1, "0")
    return f"{text[:-digits]}.{text[-digits:]}"


def main():
    os.makedirs(HERE, exist_ok=True)
    rng = random.Random(5)
    rows, hard = [], []
    for i in range(COUNT):
        texts = ["", "plain", "quote \" back \\ slash / \b\f\n\r\t", "\0zero", "Grüße, 世界", "😀 𝄞 \U0010ffff", "\u2028\x7f"]
        rows.append({
            "id": rng.randrange(-2**63, 2**63), "big": rng.randrange(2**64), "small": rng.randrange(-128, 128),
            "x": rng.uniform(-1, 1) * 10.0 ** rng.randrange(-300, 300), "ok": rng.random() < 0.5,
            "text": texts[i % len(texts)] + "é" * (i % 3),
            "tokens": [rng.randrange(50257) for _ in range(rng.randrange(9))],
            "box": [[rng.random() for _ in range(3)] for _ in range(2)],
            "meta": {"lang": rng.choice(["en", "de"]), "at": {"line": i}}, "other": [None, {"a": [1, "b"]}],
        })
        bits, exponent = [(11, -12), (8, -9), (24, -30), (11, 0), (24, -24), (8, -30)][i % 6]
        hard.append(tie(rng, bits, exponent, rng.choice([-1, 0, 1])))
    rows[0]["id"], rows[1]["id"], rows[2]["big"], rows[3]["big"] = -2**63, 2**63 - 1, 2**64 - 1, 0
    rows[4]["x"], rows[5]["x"], rows[6]["x"] = 5e-324, 1.7976931348623157e308, -0.0
    with open(f"{HERE}/python.jsonl", "w", encoding="utf-8", newline="") as out:
        for i, row in enumerate(rows):
            line = json.dumps(row, ensure_ascii=i % 2 == 0, separators=None if i % 3 else (",", ":"))
            out.write(line[:-1] + f', "hard": {hard[i]}}}' + ("\r\n" if i % 5 == 0 else "\n"))
    for name, dtype in [("id", "<i8"), ("big", "<u8"), ("small", "i1"), ("x", "<f8"), ("ok", "?"), ("box", "<f8")]:
        np.save(f"{HERE}/{name}.npy", np.array([r[name] for r in rows], dtype=dtype))
    np.save(f"{HERE}/float32.npy", np.array([nearest(t, 24, -149) for t in hard], dtype="<f4"))
    np.save(f"{HERE}/float16.npy", np.array([nearest(t, 11, -24) for t in hard], dtype="<f2"))
    bfloat16 = np.array([nearest(t, 8, -133) for t in hard], dtype="<f4").view("<u4") >> 16
    np.save(f"{HERE}/bfloat16.npy", bfloat16.astype("<u2"))
    np.save(f"{HERE}/tokens.npy", np.array([t for r in rows for t in r["tokens"]], dtype="<i4"))
    np.save(f"{HERE}/lengths.npy", np.array([len(r["tokens"]) for r in rows], dtype="<i4"))
    text = [r["text"].encode() for r in rows]
    np.save(f"{HERE}/text.npy", np.frombuffer(b"".join(text), dtype="u1"))
    np.save(f"{HERE}/text_lengths.npy", np.array([len(t) for t in text], dtype="<i4"))


if __name__ == "__main__":
    main()
