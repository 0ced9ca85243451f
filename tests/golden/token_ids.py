"""What numbers `tokenizers` gives to added tokens whose ids in the file are not those that it would count: writes
token_ids.json, a list of a tokenizer.json, a text and its tokens, which tests/transform/tokenize_spec.lua reads.

Made with tokenizers 0.23.3:  python3 token_ids.py
"""
import json
import pathlib
import random

from tokenizers import Tokenizer

NAMES = ["<p>", "<q>", "<r>", "<s>", "<t u>", "\u00e9", "\u4e16", "ab", "\u0120a"]
CASES = 40


def case(rng):
    """The vocabulary has some of the names, with or without gaps; some stand twice; ids are the right ones, or any."""
    texts = ["a", "b", "ab", "\u0120", *rng.sample(NAMES[:7], rng.randrange(5))]
    numbers = list(range(len(texts))) if rng.random() < 0.5 else rng.sample(range(40), len(texts))
    added = [{"id": rng.choice([len(texts) + i, rng.randrange(60)]), "content": name, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": rng.random() < 0.3, "special": rng.random() < 0.5}
             for i, name in enumerate(rng.choices(NAMES, k=rng.randrange(1, 9)))]
    file = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": None,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": dict(zip(texts, numbers)), "merges": [["a", "b"]]},
    }
    text = "".join(rng.choice([*NAMES, "ab", "b a "]) for _ in range(16))
    tokens = Tokenizer.from_str(json.dumps(file)).encode(text, add_special_tokens=False).ids
    return {"file": json.dumps(file, ensure_ascii=False), "text": text, "tokens": tokens}


rng = random.Random(16)
answers = json.dumps([case(rng) for _ in range(CASES)], ensure_ascii=False, indent=0)
(pathlib.Path(__file__).parent / "token_ids.json").write_text(answers + "\n", encoding="utf-8")
