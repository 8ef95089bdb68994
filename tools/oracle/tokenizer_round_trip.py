#!/usr/bin/env python3
"""Holds tokenizers that tessera exports against what they were made from.

    tools/oracle/tokenizer_round_trip.py --tessera build/release/tessera [--tokenizer NAME_OR_PATH ...] [--texts 200]

For each tokenizer tessera takes one step of a tiny model and exports it; transformers' AutoTokenizer reads
the directory. Over samples and random texts its ids must be those of tessera (`tokenizer encode`) and of
the original's own library: sentencepiece, tiktoken's ranks and GPT-2's pair by tokenizers and transformers'
own reading of the original directory. Without --tokenizer: those of tests/tokenizer/goldens, one that
tessera trains, bytes, and SentencePiece models with its own normalisers, trained here. Exit status 1 if
anything differs. Packages: transformers, sentencepiece, protobuf, tiktoken.
"""

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import sentencepiece as spm
from transformers import AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "tokenizer" / "goldens"
sys.path.insert(0, str(ROOT / "tools" / "goldens"))
import sentencepiece_goldens  # noqa: E402

SHAPE = "--model_type llama_v2 --hidden_width 32 --num_layers 1 --num_heads 2 --intermediate_size 64 --max_context_width 16"
BITS = ["a", "aa", "aaa", "the", "th", " ", "  ", "   ", "\n", "\t", "\u2581", "\u2581\u2581", "<s", "0x41>", "<0x41>", "<unk>"]


def random_texts(count, pieces):
    """Without NUL, which text cannot hold, and noncharacters; strings of one letter are short."""
    draw = random.Random(3)

    def character():
        low, high = draw.choice([(1, 0x2FF), (0x300, 0x345), (0x300, 0x30FF), (0xAC00, 0xD7A3), (0x1100, 0x11FF),
                                 (0xFF00, 0xFF9F), (0xE000, 0xF8FF), (0x10000, 0x1FFF0)])
        return chr(draw.randint(low, high))

    def part():
        kind = draw.random()
        if kind < 0.35:
            return draw.choice(pieces)
        if kind < 0.5:
            return draw.choice(BITS)
        return chr(draw.randint(32, 126)) if kind < 0.8 else character()

    for _ in range(count):
        yield "".join(part() for _ in range(draw.randint(1, 25)))


def texts_for(count, pieces):
    for name, data, repeat in sentencepiece_goldens.samples():
        text = (data * min(repeat, 40)).decode(errors="ignore").replace("\0", "")
        if "noncharacter" not in name and not any(f"<{x}>" in text for x in ("s", "/s", "pad")):
            yield text
    yield from random_texts(count, pieces)


class Trip:
    def __init__(self, tessera, work):
        self.tessera, self.work, self.failures = tessera, work, 0

    def run(self, *words, text=None):
        done = subprocess.run([self.tessera, *map(str, words)], cwd=self.work, input=text, capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"tessera {' '.join(map(str, words))}:\n{done.stderr.decode()}")
        return done.stdout.decode()

    def ids(self, tokenizer, text):
        return [int(i) for i in self.run("tokenizer", "encode", "--tokenizer", tokenizer, text=text.encode()).split()]

    def export(self, name, vocabulary, out):
        self.run("train", *SHAPE.split(), "--dataset", "text.txt", "--tokenizer", name, "--vocab_size", vocabulary,
                 "--max_steps", 1, "--save_final_model", 1, "--model_dir", out, "--checkpoint_dir", f"{out}.ckpt")
        return AutoTokenizer.from_pretrained(self.work / out)

    def compare(self, what, texts, ours, theirs, tie=lambda a, b: False):
        differ = [text for text in texts if ours(text) != theirs(text)]
        wrong = [text for text in differ if not tie(ours(text), theirs(text))]
        ties = f", {len(differ) - len(wrong)} cut another way of the same score" if len(differ) > len(wrong) else ""
        print(f"  {'ok  ' if not wrong else 'FAIL'} {what}: {len(wrong)} of {len(texts)} differ{ties}")
        for text in wrong[:2]:
            print(f"       {text!r}\n       {ours(text)}\n       {theirs(text)}")
        self.failures += bool(wrong)


def vocabulary_of(trip, name):
    words = trip.run("tokenizer", "info", "--tokenizer", name).replace(",", "").split()
    return 257 if name == "byte" else int(words[words.index("tokens") - 1])


def is_unigram(model):
    """Of a BPE model the scores are the numbers of its merges, whole and negative."""
    return any(model.get_score(i) != round(model.get_score(i)) for i in range(model.get_piece_size()))


def round_trip(trip, name, count):
    print(name)
    out = "out" + str(len(list(trip.work.iterdir())))
    written = trip.export(name, vocabulary_of(trip, name), out)
    # In text, words of special tokens are text to tessera; transformers takes them for the tokens.
    names = {t.content for t in written.added_tokens_decoder.values() if t.special} | set(written.all_special_tokens)
    pieces = [t.replace("\u2581", " ") for t in written.get_vocab() if t not in names and not t.startswith("<0x")]
    texts = [t for t in texts_for(count, sorted(pieces)) if not any(n in t for n in names)]

    def exported(text):
        return written(text, add_special_tokens=False)["input_ids"]

    few = texts[:: max(1, len(texts) // 150)]
    path = pathlib.Path(name)
    model, tie = None, lambda a, b: False
    if path.suffix == ".model" and path.read_bytes()[:1] == b"\n":
        model = spm.SentencePieceProcessor(model_file=str(path))
        if is_unigram(model):

            def tie(a, b):
                scores = [sum(map(model.get_score, ids)) for ids in (a, b)]
                return model.decode(a) == model.decode(b) and abs(scores[0] - scores[1]) < 1e-4

    trip.compare("transformers and tessera", few, exported, lambda text: trip.ids(name, text), tie)
    trip.compare("tessera before and after", few[::5], lambda text: trip.ids(name, text), lambda text: trip.ids(out, text), tie)
    if model:
        trip.compare("transformers and sentencepiece", texts, exported, model.encode, tie)
        begin = [model.bos_id()] if model.bos_id() >= 0 else []
        trip.compare("with the ids before a text", texts[:20], lambda text: written(text)["input_ids"],
                     lambda text: begin + model.encode(text), tie)
    elif path.is_dir():
        original = AutoTokenizer.from_pretrained(path)
        trip.compare("transformers before and after", texts, exported,
                     lambda text: original(text, add_special_tokens=False)["input_ids"])


def originals(trip):
    """What there is to take on a trip."""
    corpus = GOLDENS / "corpus.txt"
    trip.run("tokenizer", "train", "--input", corpus, "--vocab_size", 400, "--output", trip.work / "own.json")
    yield from ["byte", trip.work / "own.json"]
    for form in "tokenizer", "neox", "llama3":
        folder = trip.work / form
        folder.mkdir()
        shutil.copy(GOLDENS / f"{form}.json", folder / "tokenizer.json")
        yield folder
    llama = trip.work / "llama"
    llama.mkdir()
    shutil.copy(GOLDENS / "sentencepiece" / "llama.json", llama / "tokenizer.json")
    (llama / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}))
    yield llama
    yield from sorted((GOLDENS / "sentencepiece").glob("*.model"))
    for rule in "nmt_nfkc", "nfkc", "nmt_nfkc_cf":
        for kind in "unigram", "bpe":
            prefix = trip.work / f"{kind}_{rule}"
            spm.SentencePieceTrainer.train(input=str(corpus), model_prefix=str(prefix), vocab_size=400, model_type=kind,
                                           hard_vocab_limit=False, normalization_rule_name=rule, minloglevel=2)
            yield prefix.with_suffix(".model")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizer", nargs="+", help="these alone")
    parser.add_argument("--texts", type=int, default=200, help="random ones for each")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        trip = Trip(arguments.tessera.resolve(), pathlib.Path(work))
        shutil.copy(GOLDENS / "corpus.txt", trip.work / "text.txt")
        for name in arguments.tokenizer or originals(trip):
            round_trip(trip, str(name), arguments.texts)
    print("all agree" if not trip.failures else f"{trip.failures} comparisons differ")
    sys.exit(bool(trip.failures))


if __name__ == "__main__":
    main()
