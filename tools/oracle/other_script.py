"""What the programs of this folder that have no ending in their names share."""

import importlib.machinery
import importlib.util
import pathlib


def load(name):
    """The program of that name beside this file, as a module."""
    path = pathlib.Path(__file__).resolve().parent / name
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module
