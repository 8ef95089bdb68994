"""Data sets in which every token is another id, so that it can be told of a job how often it learned each: for
data_ledger and elastic_job."""

import array
import gzip
import json
import lzma
import random

from job_processes import Failure, require

FILES = 7
MODULUS = 2**64


def mix(x):
    """SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) % MODULUS
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % MODULUS
    x = (x ^ x >> 27) * 0x94D049BB133111EB % MODULUS
    return x ^ x >> 31


class Ledger:
    """The pairs of an input and a target that are learned, each once an epoch."""

    def __init__(self, pairs):
        self.pairs = {mix((a << 32) + b): (a, b) for a, b in pairs}
        require(len(self.pairs) == len(pairs), "two pairs have one hash")

    def check(self, steps, epochs):
        found = sum(int(step["data_hash"], 16) for step in steps)
        learned = sum(step["tokens"] for step in steps)
        more = (found - epochs * sum(self.pairs)) % MODULUS
        if more in self.pairs:
            raise Failure(f"{self.pairs[more]} was learned once too often")
        if -more % MODULUS in self.pairs:
            raise Failure(f"{self.pairs[-more % MODULUS]} was learned once too few")
        require(more == 0 and learned == epochs * len(self.pairs),
                f"{learned} tokens were learned instead of {epochs} times {len(self.pairs)}, and not each as often")


def documents(seed, tokens):
    """Documents of ids that count from 1 on, short ones and such as fill many windows."""
    chance, found, next_id = random.Random(seed), [], 1
    while next_id <= tokens:
        common = [chance.randint(3, 30) for _ in range(5)]
        length = min(chance.choice((1, 2, chance.randint(60, 200), *common)), tokens + 1 - next_id)
        found.append(list(range(next_id, next_id + length)))
        next_id += length
    chance.shuffle(found)
    return found


def pack(text, number):
    """The content of file `number`, and the end of its name."""
    if number % 3 == 0:
        return text, ".jsonl"
    if number % 3 == 1:
        middle = len(text) // 3
        return gzip.compress(text[:middle], mtime=0) + gzip.compress(text[middle:], mtime=0), ".jsonl.gz"
    return lzma.compress(text), ".jsonl.xz"


def write_data(folder, all_documents):
    """lines/ and ids/train.bin; returns the ledgers of both."""
    (folder / "lines").mkdir()
    (folder / "ids").mkdir()
    for number in range(FILES):
        rows = [{"input_ids": d, "labels": [-100, *d[1:]]} for d in all_documents[number::FILES]]
        content, suffix = pack("".join(json.dumps(row) + "\n" for row in rows).encode(), number)
        (folder / f"lines/train-{number}{suffix}").write_bytes(content)
    ids = [i for d in all_documents for i in d]
    (folder / "ids/train.bin").write_bytes(array.array("H", ids).tobytes())
    inside = [pair for d in all_documents for pair in zip(d, d[1:])]
    return Ledger(inside), Ledger(list(zip(ids, ids[1:])))
