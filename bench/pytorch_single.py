#!/usr/bin/env python3
"""Trains a causal language model of transformers in one process, for bench/vs_pytorch.

The model comes from a directory in Hugging Face's form, the windows of tokens, their order and the rates
from files, as tools/oracle/README.md describes them. Attention is scaled_dot_product_attention, AdamW the
fused one. Masters and moments are f32; what computes in bf16 is --compute:

  f32       nothing
  autocast  products and attention, in torch.autocast
  masters   everything: the model is bf16, and AdamW updates f32 copies that are copied back
"""

import time

BEGIN = time.monotonic()

import argparse
import contextlib
import pathlib
import sys

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools/oracle"))
from train_llama import IGNORED, Windows, make_optimizer  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "train_ids", "order", "lr_file"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    for name in ("steps", "batch_size", "context", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("beta2", "weight_decay", "grad_clip"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--compute", choices=("f32", "autocast", "masters"), required=True)
    parser.add_argument("--compile", action="store_true")
    parser.set_defaults(beta1=0.9, eps=1e-8)
    return parser.parse_args()


class Masters:
    """f32 copies of a bf16 model's parameters, updated in their place."""

    def __init__(self, model):
        self.parameters = dict(model.named_parameters())
        self.copies = {name: p.detach().float().clone().requires_grad_()
                       for name, p in self.parameters.items()}
        model.to(torch.bfloat16)

    def take_gradients(self):
        for name, parameter in self.parameters.items():
            self.copies[name].grad = parameter.grad.float()
            parameter.grad = None

    @torch.no_grad()
    def give_back(self):
        for name, parameter in self.parameters.items():
            parameter.copy_(self.copies[name])


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    imported = time.monotonic()
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    model.train()
    masters = Masters(model) if args.compute == "masters" else None
    trained = masters.copies if masters else dict(model.named_parameters())
    optimizer = make_optimizer(trained, args)
    bf16 = args.compute == "autocast"

    def loss_of(inputs, targets):
        context = torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext()
        with context:
            logits = model(input_ids=inputs).logits
        return cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)

    if args.compile:
        loss_of = torch.compile(loss_of)
    print(f"[rank 0] Imports took {imported - BEGIN:.2f} s, model {time.monotonic() - imported:.2f} s",
          flush=True)
    windows = Windows(args.train_ids, args.context)
    order = np.fromfile(args.order, dtype="<i8")
    rates = [float(word) for word in args.lr_file.read_text().split()]
    for step in range(args.steps):
        numbers = order[step * args.batch_size : (step + 1) * args.batch_size]
        optimizer.zero_grad(set_to_none=True)
        begin = time.perf_counter()
        batch = windows.batch(numbers)
        waited = time.perf_counter() - begin
        loss = loss_of(*batch)
        loss.backward()
        if masters:
            masters.take_gradients()
        norm = torch.nn.utils.clip_grad_norm_(trained.values(), args.grad_clip)
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        optimizer.step()
        if masters:
            masters.give_back()
        print(f"Batch {step} Loss: {loss.item():.5f}, gradnorm: {norm.item():.4f}, "
              f"waited {1000 * waited:.3f} ms", flush=True)


if __name__ == "__main__":
    main()
