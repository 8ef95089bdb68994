"""What all requests to server.py share: the directory that it serves, and how often something was asked for."""

import pathlib
import sys
import threading

ROOT = pathlib.Path(sys.argv[1])
LOCK = threading.Lock()
COUNTS = {}


def count(key):
    with LOCK:
        COUNTS[key] = COUNTS.get(key, 0) + 1
        return COUNTS[key]
