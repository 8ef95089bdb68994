#!/usr/bin/env python3
"""One rank of a Llama trained with PyTorch's fully_shard over Gloo, for bench/vs_pytorch_fsdp.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who it is. The model, its initial weights, the
windows of tokens, their order and the rates come from files, as tools/oracle/README.md describes
them. Masters, AdamW and the sums of gradients are f32, compute is bf16, nothing is recomputed.
Every choice is PyTorch's faster or smaller one where there are several:

- the model is made on the meta device, and a rank reads no weight but to keep its shard;
- every layer is a unit of its own, gathered for one use, as with tessera's full_shard;
- gradients travel in f32: Gloo sums no bf16 for fully_shard without a copy to f32 and back;
- AdamW is the fused one, attention is scaled_dot_product_attention.
"""

import time

BEGIN = time.monotonic()

import argparse
import os
import pathlib
import sys

import numpy as np
import torch
import torch.distributed as dist
from safetensors import safe_open
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM, LlamaRotaryEmbedding

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools/oracle"))
from train_llama import IGNORED, Windows, make_optimizer  # noqa: E402


def say(text):
    """One line, in one write: the ranks share a pipe."""
    sys.stdout.write(f"[rank {dist.get_rank()}] {text}\n")
    sys.stdout.flush()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("config", "weights", "train_ids", "order", "lr_file"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    for name in ("steps", "batch_size", "context"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("beta2", "weight_decay", "grad_clip"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.set_defaults(beta1=0.9, eps=1e-8)
    return parser.parse_args()


def sharded_model(args):
    config = LlamaConfig.from_json_file(args.config)
    config._attn_implementation = "sdpa"
    config.use_cache = False
    with torch.device("meta"):
        model = LlamaForCausalLM(config).float().train()
    model.tie_weights()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cpu")
    model.tie_weights()
    model.model.rotary_emb = LlamaRotaryEmbedding(config)  # its frequencies are no parameters
    with safe_open(args.weights, framework="pt") as weights, torch.no_grad():
        for name, parameter in model.named_parameters():
            whole = weights.get_tensor(name)
            # src_data_rank=None: each rank has read the tensor itself and cuts its part out of it.
            shard = distribute_tensor(whole, mesh, parameter.placements, src_data_rank=None)
            parameter.to_local().copy_(shard.to_local())
    return model


def rows_of_rank(batch):
    rows = len(batch) // dist.get_world_size()
    return batch[dist.get_rank() * rows :][:rows]


def train(model, args):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    windows = Windows(args.train_ids, args.context)
    order = np.fromfile(args.order, dtype="<i8")
    rates = [float(word) for word in args.lr_file.read_text().split()]
    optimizer = make_optimizer(dict(model.named_parameters()), args)
    for step in range(args.steps):
        numbers = order[step * args.batch_size : (step + 1) * args.batch_size]
        inputs, targets = windows.batch(rows_of_rank(numbers))
        # fully_shard divides sums of gradients by the number of ranks; every window is full here.
        tokens = args.batch_size * args.context
        optimizer.zero_grad(set_to_none=True)
        logits = model(input_ids=inputs).logits
        loss = cross_entropy(logits.flatten(0, 1).float(), targets.flatten(),
                             ignore_index=IGNORED, reduction="sum") / tokens
        (loss * ranks).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        optimizer.step()
        total = loss.detach()
        dist.all_reduce(total)
        norm = norm.full_tensor().item()
        if rank == 0:
            say(f"Batch {step} Loss: {total.item():.5f}, gradnorm: {norm:.4f}")


def peak_resident_mib():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    imported, memory = time.monotonic(), peak_resident_mib()
    dist.init_process_group("gloo")
    model = sharded_model(args)
    say(f"Imports took {imported - BEGIN:.2f} s and {memory:.0f} MiB, "
        f"joining and model {time.monotonic() - imported:.2f} s")
    train(model, args)
    say(f"Peak resident memory of the process: {peak_resident_mib():.1f} MiB")
    dist.barrier()
    os._exit(0)  # at times the interpreter's own exit aborts in a thread of Gloo's


if __name__ == "__main__":
    main()
