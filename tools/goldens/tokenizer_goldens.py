#!/usr/bin/env python3
"""Makes tests/tokenizer/goldens from Hugging Face `tokenizers` (development only).

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.*
    venv/bin/python tools/goldens/tokenizer_goldens.py [FOLDER]

FOLDER holds the GPT-2 pair encoder.json and vocab.bpe (default: ../shared/data/tokenizers/gpt2); without
it the GPT-2 ids are left out.

Writes corpus.txt (text to train on), tokenizer.json (trained on it by BpeTrainer, saved by `tokenizers`) and
ids.json: for each sample its bytes as hexadecimal digits, repeated `repeat` times, and for both tokenizers the
ids, or, where there are many, their number and sum((i + 1) * ids[i]) modulo 2^64.

`tokenizers` takes only valid Unicode. An invalid byte is a character that is neither letter, number nor space:
for cutting it is replaced by a private-use character, which is one too, and put back before merging.
"""
import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests/tokenizer/goldens"
GPT2 = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared/data/tokenizers/gpt2"
VOCAB_SIZE = 700
PRIVATE = 0xF0000  # stands for byte b as PRIVATE + b while cutting

PROSE = """The engine keeps one graph for each step, and the plan says where every buffer lies. It's small, isn't
it? We'll read the text, they've said, and I'd rather not wait: the reader's thread fills what the trainer's
thread takes. You're told at once when a file can't be read. 12 files, 345 lines, 67.8 %, and (in the end) 9,001
tokens -- no more, no less. "Who's there?" asked the second rank; the first didn't answer.

Words that return are worth merging: the the the, reading and reader and read, merging and merged and merge,
token and tokens and tokenizer, train and trainer and training, number and numbers and numbered.
"""
CODE = """def merge(pairs, rank):
    for i, (left, right) in enumerate(pairs):
        if rank.get((left, right), -1) >= 0 and not done[i]:
\t\treturn left + right  # the first pair wins
    return None

for (size_t i = 0; i < tokens.size(); ++i) { if (tokens[i] != kEnd) ids->push_back(tokens[i]); }
"""
WORLD = """Grüße aus Köln, où l'été est à Noël; señor, mañana. Привет, мир! Γειά σου Κόσμε. 你好，世界。日本語のテキスト
です。안녕하세요 세계. مرحبا بالعالم ١٢٣. नमस्ते दुनिया १२३. สวัสดีชาวโลก 🙂🙃 👩‍🚀👩‍👩‍👧 🇩🇪 café
"""


def corpus():
    """Fixed text: the three pieces and sentences drawn from the words of the first."""
    draw = random.Random(7)
    words = PROSE.split()
    lines = [" ".join(draw.choice(words) for _ in range(draw.randint(4, 14))) for _ in range(60)]
    return PROSE + CODE + WORLD + "\n".join(lines) + "\n" + CODE + WORLD


def samples():
    """Name, bytes, repetitions."""
    texts = {
        "empty": "",
        "english": PROSE,
        "code": CODE,
        "world": WORLD,
        "contractions": "I'm you're he's we've they'll I'd can't 'S 'Re ''s 's'd'll'x l'l 'l 'r 're' \u2019s",
        "spaces": "a  b   c\td \t e\n\nf \n g\r\n\r\nh    ",
        "only spaces": "     ",
        "unicode spaces": "a\u00a0b\u00a0\u00a0c \u2003d\u3000\u3000e\u0085f\u2028g\u1680h\u202fi\u205f j\u180ek\u200bl\ufeff",
        "control": "\x00\x01\x02 \x00\x1b[0m\x07\x08\x0b\x0c\x1c\x1d\x1e\x1f\x7f\u0080\u009f",
        "combining": "e\u0301 n\u0303a \u0301 a\u0300\u0301\u0302 \u0915\u094d\u0937\u093f \u1100\u1161\u11a8",
        "numbers": "1 12 1234567890 3.14 \u00bd \u00b2\u00b3 \u2167 \u0661\u0662 \u2460 \u4e00\u4e8c a1b2 x\u00b2",
        "emoji": "\U0001f469\u200d\U0001f680\U0001f3fd \u2764\ufe0f\U0001f1e9\U0001f1ea\u00a9\u2122\U0001f642\U0001f642 :-)",
        "cjk": "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \uff11\uff12\uff13 \ud55c\uad6d\uc5b4",
        "new in Unicode 16": "a\U000105c0\U000105c1 1\U00010d40\U0001ccf0 \U0002ebf0\ua7cb\U000113d1",
        "unassigned and private": "a\u0378b\ue000c\U000e0001d\U0010ffffe\ufffe",
        "special tokens as text": "<|endoftext|> a<|endoftext|>b <|endof",
    }
    for name, text in texts.items():
        yield name, text.encode(), 1
    alphabet = "  \n\t'''sdmtrevlTLl aZ09!?.\u00a0\u2003\u3000\u0085\x1c\x00é中日가ا\u0301²Ⅷ٣🙂\u200d\u200b—"
    draw = random.Random(1)
    for i in range(40):
        yield f"mixture {i}", "".join(draw.choice(alphabet) for _ in range(60)).encode(), 1
    yield "lone continuation", b"a\x80b \xbf\xbf c", 1
    yield "truncated", b"caf\xc3 \xe2\x82 \xf0\x9f\x99 end\xe2\x82", 1
    yield "overlong", b"\xc0\xaf\xe0\x80\xaf \xf0\x80\x80\xaf\xc1\xbf", 1
    yield "surrogate", b"\xed\xa0\x80a \xed\xbf\xbf\xed\x9f\xbf", 1
    yield "too high", b"\xf4\x90\x80\x80 \xf5\x80\x80\x80\xfe\xff\xf4\x8f\xbf\xbf", 1
    yield "all bytes", bytes(range(256)), 1
    yield "latin-1", "Grüße à l'été".encode("latin-1"), 1
    yield "word of a megabyte", b"tokenizerreadingmerged", 48000
    yield "one letter many times", b"a", 100_000
    yield "many spaces", b" ", 100_000
    yield "long words", b"abcdefghijklmnopqrstuvwxyzabcdefg " * 2 + b"theenginekeepsonegraphforeachstepandtheplan", 3


def letters():
    """Byte to its letter in the byte-level alphabet."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


LETTERS = letters()
BYTES = {letter: byte for byte, letter in LETTERS.items()}


def encode(model, data):
    """Ids of any bytes: cut by ByteLevel, merged by the model; special tokens are not looked for."""
    assert not any(0xF0000 <= ord(c) < 0xF0100 for c in data.decode(errors="ignore"))
    text = data.decode(errors="surrogateescape")
    text = "".join(chr(PRIVATE + ord(c) - 0xDC00) if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)
    ids = []
    for piece, _ in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text):
        raw = bytes(BYTES[letter] for letter in piece)
        back = "".join(c if not PRIVATE <= ord(c) < PRIVATE + 256 else chr(ord(c) - PRIVATE + 0xDC00)
                       for c in raw.decode())
        word = back.encode(errors="surrogateescape")
        ids += [token.id for token in model.tokenize("".join(LETTERS[b] for b in word))]
    return ids


def golden(model, data):
    ids = encode(model, data)
    if len(ids) <= 2000:
        return {"ids": ids}
    return {"count": len(ids), "sum": str(sum((i + 1) * id for i, id in enumerate(ids)) % (1 << 64))}


def main():
    GOLDENS.mkdir(parents=True, exist_ok=True)
    text = corpus()
    (GOLDENS / "corpus.txt").write_text(text, newline="")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, min_frequency=2, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.save(str(GOLDENS / "tokenizer.json"), pretty=False)
    both = {"trained": tokenizer.model}
    if GPT2.is_dir():
        both["gpt2"] = models.BPE.from_file(str(GPT2 / "encoder.json"), str(GPT2 / "vocab.bpe"))
    rows = []
    for name, data, repeat in samples():
        row = {"name": name, "hex": data.hex(), "repeat": repeat}
        rows.append(row | {key: golden(model, data * repeat) for key, model in both.items()})
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (GOLDENS / "ids.json").write_text("[\n" + lines + "\n]\n")


if __name__ == "__main__":
    main()
