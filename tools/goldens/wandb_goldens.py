#!/usr/bin/env python3
"""Writes tests/goldens/wandb_log.sha256: the hash of a log of the records of wandb_run_test.cpp, as wandb itself frames them.

    python3 -m venv /tmp/venv-wandb && /tmp/venv-wandb/bin/pip install wandb==0.17.9 "setuptools<80"
    /tmp/venv-wandb/bin/python tools/goldens/wandb_goldens.py
"""

import hashlib
import pathlib
import tempfile

import wandb
from wandb.sdk.internal.datastore import DataStore

BLOCK, HEADER = 32768, 7


class Record:
    """What DataStore.write() asks of a message."""

    def __init__(self, content):
        self.content = content

    def ByteSize(self):
        return len(self.content)

    def SerializeToString(self):
        return self.content


def main():
    wandb._set_internal_process(disable=True)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.wandb"
        store = DataStore()
        store.open_for_write(str(path))
        for size in (0, 5, 32700, 30, 100000, BLOCK - 3 * HEADER, 3):
            store.write(Record(bytes(ord("a") + i % 23 for i in range(size))))
        for left in (-7, -6, -1, 0, 1, 5, 9):
            at = store._index % BLOCK
            store.write(Record(b"x" * ((2 * BLOCK - at - 2 * HEADER - left) % BLOCK)))  # `left` bytes behind a header
            store.write(Record(b"behind it"))
        store.close()
        log = path.read_bytes()
    root = pathlib.Path(__file__).parents[2]
    (root / "tests/goldens/wandb_log.sha256").write_text(hashlib.sha256(log).hexdigest() + "\n")


if __name__ == "__main__":
    main()
