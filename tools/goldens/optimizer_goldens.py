#!/usr/bin/env python3
"""Writes tests/goldens/optimizers.json: what the optimizers of torch make of weights and gradients.

updates: three parameters over STEPS given gradients in f64, each step clipped by clip_grad_norm_.
steps: losses and norms of the 20 training steps of MODEL, as llama_goldens.py has them for AdamW.
torch has no Lion: it is written out here, of the paper's algorithm 2 (Chen et al. 2023).
"""

import json
import pathlib

import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

import llama_goldens

STEPS = 5
SHAPES = [[5, 3], [4], [7, 2]]
MAX_NORM = 2.0  # some of the gradients are above it
WEIGHT_DECAY = 0.1
MODEL = "llama2_tiny"


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                direction = torch.sign(beta1 * m + (1 - beta1) * p.grad)
                p -= group["lr"] * (direction + group["weight_decay"] * p)
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"lr": 0.001, "betas": (0.9, 0.95), "eps": 1e-8}),
    "sgd": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.75}),
    # A sign that rounding turns moves a weight by twice the rate: a small one keeps such noise small.
    "lion": (Lion, {"lr": 0.0002, "betas": (0.9, 0.99)}),
}


def make(name, parameters):
    """Matrices decay, vectors do not."""
    kind, options = OPTIMIZERS[name]
    return kind(
        [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
        ],
        **options,
    )


def record_updates(name, weights, gradients):
    parameters = [w.clone().requires_grad_() for w in weights]
    optimizer = make(name, parameters)
    after = []
    for step in gradients:
        for p, g in zip(parameters, step):
            p.grad = g.clone()
        torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM)
        optimizer.step()
        after.append([p.detach().flatten().tolist() for p in parameters])
    return after


def record_steps(name, directory):
    golden = load_file(directory / "golden.safetensors")
    model = LlamaForCausalLM.from_pretrained(directory, attn_implementation="eager").float().train()
    parameters = list(model.parameters())
    optimizer = make(name, parameters)
    losses, norms = [], []
    for tokens, targets in zip(golden["train_tokens"], golden["train_labels"]):
        optimizer.zero_grad(set_to_none=True)
        loss = llama_goldens.forward(model, tokens.long(), targets.long())[1]
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, llama_goldens.MAX_GRAD_NORM).item())
        losses.append(loss.item())
        optimizer.step()
    return {"losses": losses, "norms": norms}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(9)
    draw = lambda shape: torch.randn(shape, dtype=torch.float64)
    weights = [draw(shape) for shape in SHAPES]
    gradients = [[draw(shape) * 0.3 * (1 + step) for shape in SHAPES] for step in range(STEPS)]
    goldens = pathlib.Path(__file__).parents[2] / "tests/goldens"
    golden = {
        "torch": torch.__version__,
        "shapes": SHAPES,
        "max_norm": MAX_NORM,
        "weight_decay": WEIGHT_DECAY,
        "model": MODEL,
        "weights": [w.flatten().tolist() for w in weights],
        "gradients": [[g.flatten().tolist() for g in step] for step in gradients],
        "optimizers": {
            name: {
                "options": options,
                "updates": record_updates(name, weights, gradients),
                "steps": record_steps(name, goldens / MODEL),
            }
            for name, (_, options) in OPTIMIZERS.items()
        },
    }
    (goldens / "optimizers.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
