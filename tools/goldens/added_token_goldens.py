#!/usr/bin/env python3
"""Makes tests/tokenizer/goldens/sentencepiece/added.json from `tokenizers` (development only).

    venv/bin/python tools/goldens/added_token_goldens.py

Packages as for sentencepiece_goldens.py, after which it runs. Random sets of added tokens, with every
flag and among them white space and pieces of the vocabulary, in the variants of llama.json, and the ids
of random texts. Texts for which `tokenizers` fails (a token that swallows another one) are left out.
"""
import contextlib
import json
import os
import random

from tokenizers import Tokenizer

import sentencepiece_goldens
import tokenizer_goldens

SPACE = "\u2581"
TOKENS = ["<x>", "<mask>", "rank", "the", "\n", "  ", " ", "\t", "\n\n", " a", "a ", "a b", "ab", "ba", "b", "\u3000",
          SPACE, SPACE * 2, f"{SPACE}a", "e\u0301", "\u00e9", "<s", "s>", "th", " the", "\r\n", "\u00a0"]
PARTS = [*TOKENS, "x", "s", "y", "<", "1", "_", " ", "  ", "\n", "the ", "rank "]


def configurations(file, draw):
    """Variant, its file with added tokens, and those tokens."""
    variants = list(sentencepiece_goldens.variants(file).items())
    for _ in range(120):
        name, tokenizer = draw.choice(variants)
        changed = json.loads(tokenizer.to_str())
        vocabulary = changed["model"]["vocab"]
        added, fresh, seen = [], len(vocabulary), set()
        for text in draw.sample(TOKENS, draw.randint(1, 5)):
            if text.replace(" ", SPACE) in seen:
                continue  # two that are equal once normalized are refused
            seen.add(text.replace(" ", SPACE))
            flags = {key: draw.random() < p for key, p in (("single_word", 0.25), ("lstrip", 0.35), ("rstrip", 0.35),
                                                         ("normalized", 0.5), ("special", 0.2))}
            added.append({"id": vocabulary.get(text, fresh), "content": text, **flags})
            fresh += text not in vocabulary
        changed["added_tokens"] = sorted(changed["added_tokens"] + added, key=lambda token: token["id"])
        yield name, Tokenizer.from_str(json.dumps(changed)), added


def main():
    draw = random.Random(12)
    file = (sentencepiece_goldens.GOLDENS / "llama.json").read_text()
    rows = []
    for name, tokenizer, added in configurations(file, draw):
        row = {"variant": name, "added": added, "prompts": []}
        for _ in range(8):
            text = "".join(draw.choice(PARTS) for _ in range(draw.randint(1, 8)))
            with open(os.devnull, "w") as devnull, contextlib.redirect_stderr(devnull), contextlib.suppress(BaseException):
                row["prompts"].append([text, tokenizer.encode(text).ids])
        rows.append(row)
    tokenizer_goldens.write_rows(sentencepiece_goldens.GOLDENS / "added.json", rows)


if __name__ == "__main__":
    main()
