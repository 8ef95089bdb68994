#!/usr/bin/env python3
"""Writes tests/goldens/z_loss.json: the sums of a small output head and their gradients by torch.

    loss = sum over counted rows of the cross-entropy, squares = sum of their logsumexp squared;
    dx, dw: gradients of loss + factor * squares. All in f64.
"""

import json
import pathlib

import torch
from torch.nn.functional import cross_entropy

ROWS, WIDTH, CLASSES, FACTOR, IGNORED = 5, 3, 4, 0.375, -100


def main():
    torch.manual_seed(5)
    x = torch.randn(ROWS, WIDTH, dtype=torch.float64).mul(2).requires_grad_()
    w = torch.randn(CLASSES, WIDTH, dtype=torch.float64).requires_grad_()
    targets = torch.tensor([2, 0, IGNORED, 3, 3])
    logits = x @ w.T
    loss = cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    squares = logits.logsumexp(-1)[targets != IGNORED].square().sum()
    (loss + FACTOR * squares).backward()
    golden = {"torch": torch.__version__, "factor": FACTOR, "x": x.tolist(), "w": w.tolist(),
              "targets": targets.tolist(), "loss": loss.item(), "squares": squares.item(),
              "dx": x.grad.tolist(), "dw": w.grad.tolist()}
    root = pathlib.Path(__file__).parents[2]
    (root / "tests/goldens/z_loss.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
