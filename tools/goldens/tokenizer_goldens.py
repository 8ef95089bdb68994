#!/usr/bin/env python3
"""Makes tests/tokenizer/goldens from Hugging Face `tokenizers` and `tiktoken` (development only).

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.* tiktoken==0.14.*
    venv/bin/python tools/goldens/tokenizer_goldens.py [FOLDER]

FOLDER holds the GPT-2 pair encoder.json and vocab.bpe (default: ../shared/data/tokenizers/gpt2); without
it the GPT-2 ids are left out.

Writes corpus.txt (text to train on) and tokenizers trained on it by BpeTrainer, in the form of published ones:
- tokenizer.json: GPT-2's pre-tokenizer; tiktoken.model: the same tokens as ranks.
- llama3.json: Llama-3's pre-tokenizer, template and ignore_merges, with tokens that no merge makes.
- neox.json: GPT-NeoX's NFC and runs of spaces as added tokens.
ids.json has for each sample its bytes as hexadecimal digits, repeated `repeat` times, and for each tokenizer the
ids, or, where there are many, their number and sum((i + 1) * ids[i]) modulo 2^64. `qwen2` is llama3.json with
Qwen2's pattern. added.json has texts with added tokens of all flags: as ordinary text, where special tokens are
text, and as prompts, where they are tokens and the template is applied.

Both libraries take only valid Unicode. An invalid byte is a character that is neither letter, number nor space
and takes no part in normalization: for cutting it is replaced by a private-use character, which is one too, and put
back before merging.
"""
import base64
import json
import random
import sys
from pathlib import Path

import tiktoken
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests/tokenizer/goldens"
GPT2 = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared/data/tokenizers/gpt2"
VOCAB_SIZE = 700
PRIVATE = 0xF0000  # stands for byte b as PRIVATE + b while cutting
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")

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
        "line ends": "a\n\n b\r\n\r\n  c \n \n\n   d,\n\n.\r\n\t\n e\u2028\n\u0085f\n\n\n",
        "punctuation before words": "(word) _word --word $12 'word \u201cword\u201d\tword\u00a0word \u3000word #1a\n#b",
        "contractions in any case": "I'S I'Ll we'RE we'vE 'D'T'M 'sS 'ST it'\u017f 'll'LL '\u212aa 'lL\u00e9 '\U0001f642",
        "taken whole": "zebra zebra K\u00f6ln, zebras zebr unzebra",
        "to be composed": "e\u0301e\u0327\u0301 \u1100\u1161\u11a8 \u212b\u2126 o\u0302\u0323 \u0958 \ufb1d\u05b4 \u0344 q\u0307\u0323",
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


def ids_of(pre_tokenizer, merge, data, normalizer=None):
    """Ids of any bytes: cut by the pre-tokenizer, merged by `merge`; added tokens are not looked for."""
    assert not any(0xF0000 <= ord(c) < 0xF0100 for c in data.decode(errors="ignore"))
    text = data.decode(errors="surrogateescape")
    text = "".join(chr(PRIVATE + ord(c) - 0xDC00) if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)
    if normalizer:
        text = normalizer.normalize_str(text)
    ids = []
    for piece, _ in pre_tokenizer.pre_tokenize_str(text):
        raw = bytes(BYTES[letter] for letter in piece)
        back = "".join(c if not PRIVATE <= ord(c) < PRIVATE + 256 else chr(ord(c) - PRIVATE + 0xDC00)
                       for c in raw.decode())
        ids += merge(back.encode(errors="surrogateescape"))
    return ids


def merge_of(model):
    return lambda word: [token.id for token in model.tokenize("".join(LETTERS[b] for b in word))]


def encode(tokenizer, data):
    """The whole tokenizer where it takes the bytes, special tokens being ordinary text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        assert b"  " not in data  # an added token
        return ids_of(tokenizer.pre_tokenizer, merge_of(tokenizer.model), data, tokenizer.normalizer)
    tokenizer.encode_special_tokens = True
    return tokenizer.encode(text, add_special_tokens=False).ids


def encode_ranks(encoding, pre_tokenizer, data):
    try:
        return encoding.encode_ordinary(data.decode())
    except UnicodeDecodeError:
        return ids_of(pre_tokenizer, encoding._encode_single_piece, data)


def golden(ids, most=2000):
    if len(ids) <= most:
        return {"ids": ids}
    return {"count": len(ids), "sum": str(sum((i + 1) * id for i, id in enumerate(ids)) % (1 << 64))}


def train(text, special, pre_tokenizer, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, min_frequency=2, special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama3(text):
    tokenizer = train(text, [], split_then_bytes(LLAMA3))
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    for word in (" zebra", "K\u00f6ln"):
        data["model"]["vocab"]["".join(LETTERS[b] for b in word.encode())] = len(data["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
                                      special_tokens=[("<|begin_of_text|>", bos)])])
    return tokenizer


def neox(text):
    tokenizer = train(text, ["<|endoftext|>", "<|padding|>"], pre_tokenizers.ByteLevel(add_prefix_space=False),
                      normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return tokenizer


def changed(tokenizer, change):
    data = json.loads(tokenizer.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data))


def qwen2(tokenizer):
    def change(data):
        data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = QWEN2
    return changed(tokenizer, change)


# Content and flags: s special, n normalized, w single_word, l lstrip, r rstrip.
ADDED = [("<sep>", "l"), ("<mask>", "slr"), ("rank", "w"), ("Noe\u0308l", "n"), ("A\u030a", ""), ("<right>", "r"),
         ("<|eot|>x", ""), ("<|e", "n"), ("<|eot|>", "s"), ("<both>", "lrw"), ("\n\n", ""), ("a", "w"), ("\u00e9", "nw")]
TEXTS = ["", "one <sep> two", "one \n\t<sep><sep>  <sep> two", "a <mask> b<mask>", "rank ranks the rank, rank1 _rank rank\u0301",
         "No\u00ebl Noe\u0308l No\u00ebls", "A\u030a\u00c5 A", "x <right>  y<right>\u3000<right>\n z", "<|eot|>x <|eot|> <|eot|<|e",
         "<|endoftext|><|endoftext|>x<|padding|>", "<both> a <both>a <both>", "\n\n\n a\n\n", "a\u24d0 a\U0001f130 a\u203f a\u200d a-a a",
         "\u00e9 e\u0301 (e\u0301) xe\u0301", "     a      b", "<|begin_of_text|>Hi<|eot_id|> <|end_of_text|>", "ab  <sep>   <right>    <mask>  c"]


def added_goldens(tokenizers):
    groups = []
    for base, tokenizer in tokenizers.items():
        first = tokenizer.get_vocab_size()
        added = [{"id": first + i, "content": content, "special": "s" in flags, "normalized": "n" in flags,
                  "single_word": "w" in flags, "lstrip": "l" in flags, "rstrip": "r" in flags}
                 for i, (content, flags) in enumerate(ADDED)]
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        for token in added:
            token["id"] = vocabulary.get(token["content"], token["id"])
        added = [token for token in added if token["id"] >= first or token["content"] == "a"]
        for i, token in enumerate([token for token in added if token["id"] >= first]):
            token["id"] = first + i
        oracle = changed(tokenizer, lambda data: data["added_tokens"].extend(added))
        cases = []
        for text in TEXTS:
            oracle.encode_special_tokens = True
            ordinary = oracle.encode(text, add_special_tokens=False).ids
            oracle.encode_special_tokens = False
            cases.append({"text": text, "ordinary": ordinary, "prompt": oracle.encode(text).ids})
        groups.append({"base": base, "added": added, "cases": cases})
    return groups


def write_rows(path, rows):
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    path.write_text("[\n" + lines + "\n]\n")


def main():
    GOLDENS.mkdir(parents=True, exist_ok=True)
    text = corpus()
    (GOLDENS / "corpus.txt").write_text(text, newline="")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained = train(text, ["<|endoftext|>"], byte_level)
    trained.save(str(GOLDENS / "tokenizer.json"), pretty=False)
    others = {"llama3": llama3(text), "neox": neox(text)}
    for name, tokenizer in others.items():
        tokenizer.save(str(GOLDENS / f"{name}.json"), pretty=False)
    added = added_goldens(others)
    others["qwen2"] = qwen2(others["llama3"])

    order = sorted((id, token) for token, id in trained.get_vocab().items() if token != "<|endoftext|>")
    ranks = {bytes(BYTES[letter] for letter in token): rank for rank, (_, token) in enumerate(order)}
    lines = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    (GOLDENS / "tiktoken.model").write_text(lines)
    encoding = tiktoken.Encoding("small", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})

    models_of_bytes = {"trained": trained.model}
    if GPT2.is_dir():
        models_of_bytes["gpt2"] = models.BPE.from_file(str(GPT2 / "encoder.json"), str(GPT2 / "vocab.bpe"))
    rows = []
    for name, data, repeat in samples():
        row = {"name": name, "hex": data.hex(), "repeat": repeat}
        data *= repeat
        for key, model in models_of_bytes.items():
            row[key] = golden(ids_of(byte_level, merge_of(model), data))
        for key, tokenizer in others.items():
            row[key] = golden(encode(tokenizer, data), 40)
        row["tiktoken"] = golden(encode_ranks(encoding, split_then_bytes(LLAMA3), data), 40)
        rows.append(row)
    write_rows(GOLDENS / "ids.json", rows)
    write_rows(GOLDENS / "added.json", added)


if __name__ == "__main__":
    main()
