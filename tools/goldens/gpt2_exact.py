"""GPT-2 as it is often trained from scratch: no biases at all, exact GELU.

transformers cannot leave the biases out, so this is a module of its own, under the same names. Its
matrices are [out, in]; tensors() gives them as GPT-2's checkpoints store them, [in, out].
"""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

CONV1D = ("c_attn", "c_proj", "c_fc")


class Norm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        return layer_norm(x, self.weight.shape, self.weight, None, self.epsilon)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=2)
        )
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.c_proj = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        return self.c_proj(gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = Norm(config.n_embd, config.layer_norm_epsilon)
        self.attn = Attention(config.n_embd, config.n_head)
        self.ln_2 = Norm(config.n_embd, config.layer_norm_epsilon)
        self.mlp = Mlp(config.n_embd)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2Exact(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.n_positions, config.n_embd),
                "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
                "ln_f": Norm(config.n_embd, config.layer_norm_epsilon),
            }
        )
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=config.initializer_range)

    def forward(self, input_ids):
        t = self.transformer
        x = t["wte"](input_ids) + t["wpe"](torch.arange(input_ids.shape[1]))
        for block in t["h"]:
            x = block(x)
        return SimpleNamespace(logits=t["ln_f"](x) @ t["wte"].weight.T)

    def as_stored(self, name, tensor):
        """A parameter, or its gradient, in the layout of GPT-2's checkpoints."""
        return tensor.T.contiguous() if name.split(".")[-2] in CONV1D else tensor

    def tensors(self):
        return {name: self.as_stored(name, p.detach()) for name, p in self.named_parameters()}
