"""tokenize_peer.py make FOLDER SEED LINES: texts (those of this machine's programs and documents, and random ones),
vocabularies trained on them, and the tokens that Hugging Face's tokenizers and tiktoken give.
tokenize_peer.py time FOLDER NAME: MB/s of one core, for the same texts.

A text is a row of text.npy, from text-offsets.npy; tokens of NAME are those of NAME.npy, from NAME-offsets.npy."""
import json
import os
import pathlib
import random
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import numpy as np
import tiktoken
from tokenizers import Tokenizer

sys.path.append(str(pathlib.Path(__file__).parents[2] / "golden"))
import tokens

RANKS = {"r50k_base": "gpt2", "cl100k_base": "llama3", "o200k_base": "o200k"}
TRAINED, SIZE, SPECIAL = 6000, 4000, {"<|end|>": 50000}


def lines_of_machine(rng, count):
    """Pieces of one to twenty lines of files that Debian has."""
    paths = [p for root in ("/usr/lib/python3", "/usr/share/doc", "/usr/share/perl", "/usr/include")
             for p in pathlib.Path(root).rglob("*") if p.suffix not in (".gz", ".pyc", ".so") and p.is_file()]
    rng.shuffle(paths)
    texts = []
    for path in paths:
        try:
            lines = path.read_text().split("\n")
        except (UnicodeDecodeError, OSError):
            continue
        while lines and len(texts) < count:
            n = rng.choice([1, 1, 2, 5, 20])
            texts.append("\n".join(lines[:n]))
            lines = lines[n:]
    return texts


def save(folder, name, rows, dtype):
    np.save(folder / f"{name}.npy", np.concatenate([np.asarray(row, dtype) for row in rows]))
    np.save(folder / f"{name}-offsets.npy", np.cumsum([0] + [len(row) for row in rows], dtype=np.int64))


def encoder(folder, name):
    """What makes tokens of a list of texts."""
    if name not in RANKS:
        made = Tokenizer.from_file(str(folder / f"{name}.json"))
        return lambda texts: [e.ids for e in made.encode_batch(texts, add_special_tokens=False)]
    kept = json.loads((folder / f"{name}.ranks.json").read_text())
    ranks = {bytes.fromhex(token): rank for token, rank in kept["ranks"].items()}
    made = tiktoken.Encoding(name, pat_str=kept["pattern"], mergeable_ranks=ranks, special_tokens=SPECIAL)
    return lambda texts: [made.encode(text, allowed_special="all") for text in texts]


def make(folder, seed, count):
    rng = random.Random(seed)
    texts = lines_of_machine(rng, count)
    texts += [tokens.random_text(rng) for _ in range(len(texts) // 5)]
    (folder / "texts.json").write_text(json.dumps(texts))
    save(folder, "text", [np.frombuffer(text.encode(), np.uint8) for text in texts], np.uint8)
    sample = rng.sample(texts, min(TRAINED, len(texts)))
    patterns = tokens.tiktoken_patterns()
    for name in [*tokens.NAMES, *RANKS]:
        if name in RANKS:
            ranks = tokens.write_ranks(folder / f"{name}.tiktoken", Tokenizer.from_file(str(folder / f"{RANKS[name]}.json")))
            (folder / f"{name}.ranks.json").write_text(json.dumps(
                {"pattern": patterns[name], "ranks": {token.hex(): rank for token, rank in ranks.items()}}))
        else:
            tokens.train(name, sample, SIZE).save(str(folder / f"{name}.json"))
        save(folder, name, encoder(folder, name)(texts), np.int32)


def measure(folder, name):
    texts = json.loads((folder / "texts.json").read_text())[:20000]
    encode = encoder(folder, name)
    encode(texts[:100])
    start = time.process_time()
    encode(texts)
    print(sum(len(text.encode()) for text in texts) / (time.process_time() - start) / 1e6)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        measure(pathlib.Path(sys.argv[2]), sys.argv[3])
