#!/usr/bin/env python3
"""Trains a Llama in PyTorch exactly as tessera was told to: same weights, tokens, order and rates.

The model is Hugging Face's LlamaForCausalLM. Masters, gradients and AdamW are f32; with bf16 every
parameter is cast for compute, as tessera does. The losses go to a JSON file, to be held against
those of a tessera run. README.md beside this file describes every argument and file.
"""

import argparse
import hashlib
import json
import math
import pathlib
import sys
import time

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch.func import functional_call
from torch.nn.functional import cross_entropy, embedding
from transformers import LlamaConfig, LlamaForCausalLM

IGNORED = -100
EMBEDDING = "model.embed_tokens.weight"
COMPUTE_DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    path = {"type": pathlib.Path, "required": True}
    files = parser.add_argument_group("files")
    files.add_argument("--config", help="config.json of the model", **path)
    files.add_argument("--weights", help="initial weights, safetensors", **path)
    files.add_argument("--train_ids", help="training tokens, raw little-endian u16", **path)
    files.add_argument("--val_ids", help="validation tokens, the same form", **path)
    files.add_argument("--order", help="window numbers in training order, raw int64", **path)
    files.add_argument("--job", type=pathlib.Path, help="JSON to copy into the result")
    files.add_argument("--out", help="JSON file to write", **path)
    run = parser.add_argument_group("run")
    run.add_argument("--steps", type=int, required=True)
    run.add_argument("--batch_size", type=int, required=True, help="windows an optimizer step")
    run.add_argument("--context", type=int, required=True, help="tokens a window")
    run.add_argument("--micro_batch", type=int, help="windows at once; default all of a batch")
    run.add_argument("--val_windows", type=int, help="first windows to validate on; default all")
    run.add_argument("--precision", choices=COMPUTE_DTYPES, default="bf16")
    rate = parser.add_argument_group("learning rate: a list, or warm-up and cosine")
    rate.add_argument("--lr_file", type=pathlib.Path, help="text, one rate a step")
    rate.add_argument("--lr", type=float, help="peak of the cosine")
    rate.add_argument("--min_lr", type=float, default=0.0)
    rate.add_argument("--warmup_steps", type=float, default=0.0, help="may be fractional")
    rate.add_argument("--decay_steps", type=float, help="default: --steps")
    optimizer = parser.add_argument_group("optimizer")
    optimizer.add_argument("--beta1", type=float, default=0.9)
    optimizer.add_argument("--beta2", type=float, default=0.95)
    optimizer.add_argument("--eps", type=float, default=1e-8)
    optimizer.add_argument("--weight_decay", type=float, default=0.1, help="not on norm weights")
    optimizer.add_argument("--grad_clip", type=float, default=1.0, help="global norm; 0: none")
    return parser.parse_args()


def learning_rates(args):
    """Rate of every step. The cosine is tessera's: step 0 has rate 0 where there is a warm-up."""
    if (args.lr_file is None) == (args.lr is None):
        sys.exit("give either --lr_file or --lr")
    if args.lr_file:
        rates = [float(word) for word in args.lr_file.read_text().split()]
        if len(rates) < args.steps:
            sys.exit(f"{args.lr_file}: {len(rates)} rates for {args.steps} steps")
        return rates[: args.steps]
    total, warmup = args.decay_steps or args.steps, args.warmup_steps
    rates = []
    for done in range(args.steps):
        done = min(done, total - warmup)
        if warmup > 0 and done <= warmup:
            rates.append(args.lr * done / warmup)
        else:
            cosine = math.cos(math.pi * (done - warmup) / total)
            rates.append(max(args.lr / 2 * (cosine + 1), args.min_lr))
    return rates


class Windows:
    """Window w: inputs ids[wT, wT + T), targets ids[wT + 1, wT + T + 1), missing ones ignored."""

    def __init__(self, path, context):
        self.path, self.context = path, context
        self.ids = np.fromfile(path, dtype="<u2").astype(np.int64)
        if len(self.ids) < 2:
            sys.exit(f"{path}: {len(self.ids)} tokens; at least 2 are needed")
        self.count = math.ceil((len(self.ids) - 1) / context)

    def batch(self, numbers):
        """Inputs and targets [len(numbers), T]; a negative number is a row of padding."""
        inputs = np.zeros((len(numbers), self.context), dtype=np.int64)
        targets = np.full_like(inputs, IGNORED)
        for row, window in enumerate(numbers):
            if window < 0:
                continue
            if window >= self.count:
                sys.exit(f"{self.path}: window {window} of {self.count}")
            piece = self.ids[window * self.context : (window + 1) * self.context + 1]
            inputs[row, : len(piece[: self.context])] = piece[: self.context]
            targets[row, : len(piece) - 1] = piece[1:]
        return torch.from_numpy(inputs), torch.from_numpy(targets)


def load_model(args):
    config = LlamaConfig.from_json_file(args.config)
    config._attn_implementation = "sdpa"
    config.use_cache = False
    model = LlamaForCausalLM(config).float().train()
    model.tie_weights()
    weights = {name: tensor.float() for name, tensor in load_file(args.weights).items()}
    masters = dict(model.named_parameters())  # a tied head is not listed
    if weights.keys() != masters.keys():
        sys.exit(f"{args.weights}: other parameters than the model's: "
                 f"{sorted(weights.keys() ^ masters.keys())}")
    with torch.no_grad():
        for name, parameter in masters.items():
            if parameter.shape != weights[name].shape:
                sys.exit(f"{args.weights}: {name} is {list(weights[name].shape)}, "
                         f"the model's is {list(parameter.shape)}")
            parameter.copy_(weights[name])
    return model, masters


def loss_sum(model, masters, dtype, inputs, targets):
    """Summed cross-entropy, with every parameter cast to dtype inside the graph.

    Embedding rows are looked up in f32 and cast then: the values are the same, but the gradient of
    a frequent token is summed in f32 and not in bf16.
    """
    compute = {name: parameter.to(dtype) for name, parameter in masters.items()}
    rows = embedding(inputs, masters[EMBEDDING]).to(dtype)  # [B, T, E]
    logits = functional_call(model, compute, kwargs={"inputs_embeds": rows}).logits  # [B, T, V]
    return cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def make_optimizer(masters, args):
    matrices = [p for p in masters.values() if p.dim() > 1]
    norms = [p for p in masters.values() if p.dim() == 1]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": args.weight_decay},
            {"params": norms, "weight_decay": 0.0},
        ],
        betas=(args.beta1, args.beta2),
        eps=args.eps,
        fused=True,
    )


def train(model, masters, windows, args):
    """The token mean of the loss before each update, gradient norms before clipping, and rates."""
    rates = learning_rates(args)
    order = np.fromfile(args.order, dtype="<i8")
    if len(order) < args.steps * args.batch_size:
        sys.exit(f"{args.order}: {len(order)} windows for {args.steps} x {args.batch_size}")
    optimizer = make_optimizer(masters, args)
    rows_at_once = args.micro_batch or args.batch_size
    dtype = COMPUTE_DTYPES[args.precision]
    losses, norms = [], []
    start = time.monotonic()
    for step in range(args.steps):
        first = step * args.batch_size
        inputs, targets = windows.batch(order[first : first + args.batch_size])
        tokens = int((targets != IGNORED).sum())
        if tokens == 0:
            sys.exit(f"{args.order}: nothing but padding in step {step}")
        optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for rows in zip(inputs.split(rows_at_once), targets.split(rows_at_once)):
            part = loss_sum(model, masters, dtype, *rows) / tokens
            part.backward()
            loss += part.item()
        limit = args.grad_clip if args.grad_clip > 0 else math.inf
        norm = torch.nn.utils.clip_grad_norm_(masters.values(), limit).item()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            sys.exit(f"step {step}: loss {loss}, gradient norm {norm}")
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        optimizer.step()
        losses.append(loss)
        norms.append(norm)
        if step % 10 == 0 or step + 1 == args.steps:
            speed = (step + 1) * args.batch_size * args.context / (time.monotonic() - start)
            print(f"step {step} loss {loss:.4f} norm {norm:.3f} rate {rates[step]:.3e} "
                  f"{speed:.0f} tokens/s", flush=True)
    return {"losses": losses, "grad_norms": norms, "learning_rates": rates}


@torch.no_grad()
def validate(model, masters, windows, args):
    """Token mean over the first --val_windows windows, in the precision of the training."""
    count = windows.count if args.val_windows is None else min(args.val_windows, windows.count)
    rows_at_once = args.micro_batch or args.batch_size
    total, tokens = 0.0, 0
    for first in range(0, count, rows_at_once):
        inputs, targets = windows.batch(range(first, min(first + rows_at_once, count)))
        total += loss_sum(model, masters, COMPUTE_DTYPES[args.precision], inputs, targets).item()
        tokens += int((targets != IGNORED).sum())
    return {"loss": total / tokens, "tokens": tokens, "windows": count}


def digest(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main():
    args = parse_arguments()
    train_windows = Windows(args.train_ids, args.context)
    val_windows = Windows(args.val_ids, args.context)
    model, masters = load_model(args)
    vocab = model.config.vocab_size
    for windows in (train_windows, val_windows):
        if windows.ids.max() >= vocab:
            sys.exit(f"{windows.path}: token {windows.ids.max()}, the vocabulary has {vocab}")

    curves = train(model, masters, train_windows, args)
    validation = validate(model, masters, val_windows, args)
    print(f"validation loss {validation['loss']:.6f} over {validation['tokens']} tokens")
    inputs = ("config", "weights", "train_ids", "val_ids", "order")
    settings = {key: value for key, value in vars(args).items()
                if not isinstance(value, pathlib.Path) and value is not None}
    result = {
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "parameters": sum(p.numel() for p in masters.values()),
        "job": json.loads(args.job.read_text()) if args.job else None,
        "settings": settings,
        "sha256": {name: digest(getattr(args, name)) for name in inputs},
        "validation": validation,
        **curves,
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
