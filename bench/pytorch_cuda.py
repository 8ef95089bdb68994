#!/usr/bin/env python3
"""Steps of a Llama or a GPT-2 by PyTorch on a GPU, with FSDP2 and torch.compile, for tools/gpu_gate and by hand.

Random tokens, weights in f32, compute in bf16, AdamW fused, clipping; one process a GPU: alone, or by torchrun. Of the
choices that PyTorch has the faster ones: scaled_dot_product_attention, every layer compiled, a fused optimizer. With
--way autocast one GPU has the model without FSDP: compiled whole, with its loss, under autocast. Prints "Step N: S s"
for every step, the GPU waited for, and in the end the largest memory.

Needs PyTorch 2.6 or later, and nothing else.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

SHAPE = ("hidden_width", "num_layers", "num_heads", "vocab_size", "max_context_width", "train_batch_size", "steps")
OF_LLAMA = ("num_key_value_heads", "intermediate_size", "tie_word_embeddings")
OF_GPT2 = ("resid_pdrop", "embd_pdrop", "attn_pdrop", "bias")


def rotate(x, cosine, sine):
    low, high = x.chunk(2, dim=-1)
    return (x * cosine + torch.cat((-high, low), dim=-1) * sine).to(x.dtype)


class LlamaLayer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        width, self.heads, self.kv_heads = shape.hidden_width, shape.num_heads, shape.num_key_value_heads
        head = width // self.heads
        self.norm_attention, self.norm_mlp = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, self.kv_heads * head, bias=False)
        self.v = nn.Linear(width, self.kv_heads * head, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, shape.intermediate_size, bias=False)
        self.up = nn.Linear(width, shape.intermediate_size, bias=False)
        self.down = nn.Linear(shape.intermediate_size, width, bias=False)

    def forward(self, x, cosine, sine):
        batch, length, _ = x.shape
        y = self.norm_attention(x)
        q = self.q(y).view(batch, length, self.heads, -1).transpose(1, 2)
        k = self.k(y).view(batch, length, self.kv_heads, -1).transpose(1, 2)
        v = self.v(y).view(batch, length, self.kv_heads, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(rotate(q, cosine, sine), rotate(k, cosine, sine), v, is_causal=True,
                                           enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, -1))
        y = self.norm_mlp(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab_size, shape.hidden_width)
        self.layers = nn.ModuleList(LlamaLayer(shape) for _ in range(shape.num_layers))
        self.norm = nn.RMSNorm(shape.hidden_width, 1e-5)
        self.head = nn.Linear(shape.hidden_width, shape.vocab_size, bias=False)
        if shape.tie_word_embeddings:
            self.head.weight = self.embedding.weight
        head = shape.hidden_width // shape.num_heads
        rates = 1 / 10000 ** (torch.arange(0, head, 2) / head)
        table = torch.outer(torch.arange(shape.max_context_width), rates)
        table = torch.cat((table, table), dim=-1)
        self.angles = table.cos().to(torch.bfloat16), table.sin().to(torch.bfloat16)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, *self.angles)
        return self.head(self.norm(x))


class Gpt2Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        width, bias = shape.hidden_width, bool(shape.bias)
        self.heads, self.attention_dropout = shape.num_heads, shape.attn_pdrop
        self.norm_attention, self.norm_mlp = (nn.LayerNorm(width, bias=bias) for _ in range(2))
        self.qkv, self.o = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)
        self.up, self.down = nn.Linear(width, 4 * width, bias), nn.Linear(4 * width, width, bias)
        self.dropout = nn.Dropout(shape.resid_pdrop)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm_attention(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.attention_dropout)
        x = x + self.dropout(self.o(y.transpose(1, 2).reshape(batch, length, -1)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm_mlp(x)), approximate="tanh")))


class Gpt2(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab_size, shape.hidden_width)
        self.positions = nn.Embedding(shape.max_context_width, shape.hidden_width)
        self.dropout = nn.Dropout(shape.embd_pdrop)
        self.layers = nn.ModuleList(Gpt2Layer(shape) for _ in range(shape.num_layers))
        self.norm = nn.LayerNorm(shape.hidden_width, bias=bool(shape.bias))
        self.head = nn.Linear(shape.hidden_width, shape.vocab_size, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        x = self.dropout(self.embedding(ids) + self.positions.weight[:ids.shape[1]])
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_type", choices=("llama_v2", "gpt2"), default="llama_v2")
    parser.add_argument("--way", choices=("fsdp2", "autocast"), default="fsdp2")
    for name in SHAPE + OF_LLAMA:
        parser.add_argument(f"--{name}", type=int, required=name in SHAPE)
    for name in OF_GPT2:
        parser.add_argument(f"--{name}", type=float, default=0)
    shape = parser.parse_args()
    if shape.model_type == "llama_v2" and (missing := [name for name in OF_LLAMA if getattr(shape, name) is None]):
        parser.error("a Llama needs " + ", ".join(f"--{name}" for name in missing))
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", "127.0.0.1"),
                        ("MASTER_PORT", "29533")):
        os.environ.setdefault(name, value)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(1)
    with device:
        model = Gpt2(shape) if shape.model_type == "gpt2" else Llama(shape)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
    autocast = shape.way == "autocast"
    if autocast and dist.get_world_size() > 1:
        parser.error("--way autocast is for one GPU")
    if not autocast:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.layers:
            layer.compile()
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
    loss_of_logits = torch.compile(
        lambda logits, targets: F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()))

    def loss_by_autocast(ids, targets):
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(ids)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def loss_by_layers(ids, targets):
        return loss_of_logits(model(ids), targets)

    loss_of = torch.compile(loss_by_autocast) if autocast else loss_by_layers
    size = (shape.train_batch_size, shape.max_context_width)
    for step in range(shape.steps):
        ids, targets = torch.randint(shape.vocab_size, (2, *size), device=device)
        torch.cuda.synchronize()
        begin = time.monotonic()
        loss = loss_of(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            print(f"Step {step}: {time.monotonic() - begin:.6f} s, loss {value:.5f}", flush=True)
    if dist.get_rank() == 0:
        print(f"Largest memory: {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
