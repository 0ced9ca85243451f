"""Writes unicode_tables.c, what the tokenizer knows of Unicode's characters:  python3 unicode_tables.py > unicode_tables.c

Letters, marks, numbers and space are those of Unicode 16.0, as Oniguruma (tokenizers 0.23) and Rust's regex (tiktoken
0.14) have them: regex 2024.11.6, unicodedata2 16.0.0. Normalising to NFC knows the characters of Unicode 9.0 alone, as
tokenizers' does: perl says which they are.
"""
import subprocess

import regex
import unicodedata2 as unicode

assert unicode.unidata_version == "16.0.0"
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))


def those(pattern):
    return {ord(c) for c in regex.findall(pattern, TEXT)}


def known_to_nfc():
    words = subprocess.run(["perl", "-e", r"for (0..0x10ffff) { print qq{$_ } if chr($_) =~ /\p{In=9.0}/ }"],
                           capture_output=True, check=True, text=True).stdout.split()
    return set(map(int, words))


def decomposition(c):
    words = unicode.decomposition(chr(c)).split()
    return [int(w, 16) for w in words] if words and not words[0].startswith("<") else []


OLD = known_to_nfc()
PARTS = {c: decomposition(c) for c in sorted(OLD) if decomposition(c)}
RANKS = {c: unicode.combining(chr(c)) for c in sorted(OLD) if unicode.combining(chr(c))}
PAIRS = {tuple(parts): c for c, parts in PARTS.items()
         if len(parts) == 2 and unicode.normalize("NFC", chr(c)) == chr(c)}
UNSURE = {b for _, b in PAIRS} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
CHANGED = {c for c in PARTS if unicode.normalize("NFC", chr(c)) != chr(c)}

CLASSES = [  # in the order of unicode.h
    those(r"\p{L}"), those(r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"), those(r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"), those(r"\p{N}"),
    those(r"\s"), {10, 13}, those(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]"),
    set(RANKS) | UNSURE | CHANGED,
]


def classes_of(c):
    return sum(1 << bit for bit, members in enumerate(CLASSES) if c in members)


def runs(value, points):
    last = None
    for c in points:
        if value(c) != last:
            last = value(c)
            yield c, last


def table(declaration, cells):
    print(f"\n{declaration} = {{")
    line = "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 120:
            print(line)
            line = "   "
        line += f" {cell},"
    print(f"{line}\n}};")


print("/* unicode_tables.c - written by unicode_tables.py, which says what it is made of. */")
print('#include "tokenizer/unicode_tables.h"\n\n/* clang-format off */')
cells = [f"{c << 8 | k:#x}" for c, k in runs(classes_of, range(0x110000))]
table("const uint32_t unicode_class_runs[UNICODE_CLASS_RUNS]", cells)
sizes = {"UNICODE_CLASS_RUNS": len(cells)}
cells = [f"{c << 8 | k:#x}" for c, k in runs(lambda c: RANKS.get(c, 0), range(0x110000))]
table("const uint32_t unicode_rank_runs[UNICODE_RANK_RUNS]", cells)
sizes["UNICODE_RANK_RUNS"] = len(cells)
table("const struct unicode_parts unicode_parts[UNICODE_PARTS]",
      [f"{{{c:#x}, {p[0]:#x}, {p[1] if len(p) > 1 else 0:#x}}}" for c, p in PARTS.items()])
sizes["UNICODE_PARTS"] = len(PARTS)
table("const struct unicode_parts unicode_pairs[UNICODE_PAIRS]",
      [f"{{{PAIRS[p]:#x}, {p[0]:#x}, {p[1]:#x}}}" for p in sorted(PAIRS)])
sizes["UNICODE_PAIRS"] = len(PAIRS)
print("/* clang-format on */")
with open("unicode_tables.h", "w") as header:
    header.write(f"""/* unicode_tables.h - written by unicode_tables.py: tables for unicode.c. */
#ifndef SHARDRT_TOKENIZER_UNICODE_TABLES_H
#define SHARDRT_TOKENIZER_UNICODE_TABLES_H

#include <stdint.h>

enum {{
{chr(10).join(f"  {name} = {size}," for name, size in sizes.items())}
}};

/* Runs of characters of one kind: the first one's code << 8 | what they are, up to the next run. */
extern const uint32_t unicode_class_runs[UNICODE_CLASS_RUNS];
extern const uint32_t unicode_rank_runs[UNICODE_RANK_RUNS]; /* canonical combining classes */

/* A character and what it is made of: one or two others (then `second` is 0, or not). */
struct unicode_parts {{
  uint32_t whole, first, second;
}};
extern const struct unicode_parts unicode_parts[UNICODE_PARTS]; /* canonical decompositions, ascending by `whole` */
extern const struct unicode_parts unicode_pairs[UNICODE_PAIRS]; /* compositions, ascending by `first`, `second` */

#endif
""")
