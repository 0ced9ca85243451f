"""What Hugging Face's tokenizers and tiktoken answer: writes the folder tokenize, which tests/transform/tokenize_spec.lua
reads. Its files are small vocabularies, trained on this repository's documents, and answers.json: texts, and for each
vocabulary their tokens. One of the vocabularies is that of recipes/fineweb_like.lua, too.

Made with tokenizers 0.23.3 and tiktoken 0.14.0:  python3 tokens.py
"""
import base64
import json
import pathlib
import random

import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
OUT = HERE / "tokenize"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
PATTERNS = {
    "llama3": ENDINGS + "|" + BEFORE + r"\p{L}+|\p{N}{1,3}" + REST,
    "qwen2": ENDINGS + "|" + BEFORE + r"\p{L}+|\p{N}" + REST,
    "marks": ENDINGS + "|" + BEFORE + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": BEFORE + UPPER + "*" + LOWER + "+" + ENDINGS + "?|" + BEFORE + UPPER + "+" + LOWER + "*" + ENDINGS
    + r"?|\p{N}{1,3}" + REST.replace(r"[\r\n]*|\s*", r"[\r\n/]*|\s*"),
    "tekken": BEFORE + UPPER + "*" + LOWER + "+|" + BEFORE + UPPER + "+" + LOWER + r"*|\p{N}"
    + REST.replace(r"[\r\n]*|\s*", r"[\r\n/]*|\s*"),
}
ADDED = [
    AddedToken("<|end|>", special=True), AddedToken("<|en", special=True), AddedToken("<pad>", lstrip=True, special=True),
    AddedToken("<sep>", rstrip=True, special=True), AddedToken("word", single_word=True, normalized=True),
    AddedToken("caf\u0065\u0301", normalized=True), AddedToken("    ", normalized=False), AddedToken("\n\n", lstrip=True),
]


def pre_tokenizer(name):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if name == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "prefix":
        return pre_tokenizers.ByteLevel(add_prefix_space=True)
    if name == "digits":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"), byte_level])


def train(name, texts, size):
    """A vocabulary of that pre-tokenizer; each has something of its own beside it."""
    made = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    made.pre_tokenizer = pre_tokenizer(name)
    made.decoder = decoders.ByteLevel()
    if name in ("qwen2", "marks"):
        made.normalizer = normalizers.NFC()
    made.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.add_tokens([token for token in ADDED if not token.special])
    made.add_special_tokens([token for token in ADDED if token.special])
    return made


NAMES = ["gpt2", "prefix", "digits", *PATTERNS]
RANGES = [(32, 126), (32, 126), (9, 13), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0xDFF),
          (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2100, 0x21FF), (0x3000, 0x30FF), (0x4E00, 0x4FFF),
          (0xAC00, 0xAD00), (0xFB00, 0xFFEF), (0x10000, 0x10FFFF), (0x1F300, 0x1FAFF), (0x1D100, 0x1D200)]
PIECES = ["<|end|>", "<|en", " <pad> ", "<sep>  ", "word", "sword", " word.", "cafe\u0301", "caf\u00e9", "    ", "\n\n",
          "'s", "'LL", "'\u017f", "'ve", " \n \n", "\r\n", "\t\tx", "1234567", " 12", "HTTPServer", "don't", "a\u0301\u0323",
          "\u1112\u1161\u11ab", "x = y /* z */\n", "//\n/", "\u3000", "\u00a0", "\u0085", "\u200d", "e" * 40, "0" * 9]


def random_text(rng):
    """Words, code, space and characters of all kinds."""
    parts = []
    for _ in range(rng.randrange(1, 14)):
        kind = rng.random()
        if kind < 0.4:
            parts.append(rng.choice(PIECES))
        elif kind < 0.6:
            parts.append(" " * rng.randrange(4) + rng.choice(WORDS))
        else:
            low, high = rng.choice(RANGES)
            for _ in range(rng.randrange(1, 5)):
                c = rng.randrange(low, high + 1)
                parts.append(chr(c) if not 0xD800 <= c < 0xE000 else "?")
    return "".join(parts)


def documents():
    return [path.read_text() for path in sorted(ROOT.glob("docs/*.md"))] + [(ROOT / "README.md").read_text()]


WORDS = sorted(set(" ".join(documents()).split()))


def write_ranks(path, made):
    """A file of tiktoken's of the same tokens."""
    symbols = {}
    following = 256
    for b in range(256):
        prints = 33 <= b <= 126 or 161 <= b <= 172 or b >= 174
        symbols[chr(b if prints else following)] = b
        following += not prints
    added = {token.content for token in made.get_added_tokens_decoder().values()}
    ranks = {bytes(symbols[c] for c in token): rank for token, rank in made.get_vocab().items() if token not in added}
    ranks = {token: i for i, token in enumerate(sorted(ranks, key=ranks.get))}
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))
    return ranks


def tiktoken_patterns():
    from tiktoken_ext import openai_public as known
    found = {}
    known.data_gym_to_mergeable_bpe_ranks = known.load_tiktoken_bpe = lambda *_, **__: {}
    for name in ("r50k_base", "cl100k_base", "o200k_base"):
        found[name] = known.ENCODING_CONSTRUCTORS[name]()["pat_str"] if hasattr(known, "ENCODING_CONSTRUCTORS") else \
            getattr(known, name)()["pat_str"]
    return found


def main():
    rng = random.Random(20)
    OUT.mkdir(exist_ok=True)
    texts = [random_text(rng) for _ in range(40)] + ["", " ", "'", "\n", "a", "word", "<|end|>"]
    answers = {"texts": texts, "tokens": {}, "patterns": tiktoken_patterns()}
    for name in NAMES:
        made = train(name, documents(), 384)
        (OUT / f"{name}.json").write_text(made.to_str(pretty=name == "gpt2"))
        answers["tokens"][name] = [made.encode(text, add_special_tokens=False).ids for text in texts]
        if name == "o200k":
            ranks = write_ranks(OUT / "ranks.tiktoken", made)
    for name, pattern in answers["patterns"].items():
        made = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|end|>": 5000})
        answers["tokens"][name] = [made.encode(text, allowed_special="all") for text in texts]
    (OUT / "answers.json").write_text(json.dumps(answers, ensure_ascii=False))
    (ROOT / "recipes" / "data" / "tokenizer.json").write_text((OUT / "llama3.json").read_text())


if __name__ == "__main__":
    main()
