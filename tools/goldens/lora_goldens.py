#!/usr/bin/env python3
"""Writes the reference values under tests/goldens/lora/ that tessera's adapters are compared with.

PEFT gives some of the tiny models of tests/goldens/ adapters with random values and saves them as
users' adapters are saved. With their batches, which golden.safetensors has, it computes logits, loss
and gradients, and trains the adapters for 20 AdamW steps. README.md beside this file lists every
file and tensor.
"""

import pathlib

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from llama_goldens import ADAMW, MAX_GRAD_NORM, WEIGHT_DECAY, forward, save_safetensors, write_json

POSITIONS = [0, 7, 47]  # of the first row, whose logits are kept

MODELS = {
    "llama31_tiny": {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"},
    "llama32_tiny": {"r": 3, "lora_alpha": 5, "use_rslora": True},
    "gpt2_tiny": {"r": 4, "lora_alpha": 2, "target_modules": ["c_attn", "c_fc", "c_proj"]},
    "gpt_neox_tiny": {"r": 2, "lora_alpha": 4, "target_modules": ["query_key_value", "dense"]},
    "qwen2_tiny": {
        "r": 5,
        "lora_alpha": 10,
        "target_modules": ["model.layers.1.self_attn.k_proj", "model.layers.0.mlp.down_proj"],
    },
}


def adapted(base, spec, seed):
    model = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager").float()
    torch.manual_seed(seed)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **spec)).eval()  # no dropout
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # zeros at first: nothing would be seen of it
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def trainable(model):
    return [(n, p) for n, p in model.named_parameters() if p.requires_grad]


def train(model, batches):
    parameters = [p for _, p in trainable(model)]
    optimizer = torch.optim.AdamW(parameters, weight_decay=WEIGHT_DECAY, **ADAMW)
    losses = []
    for tokens, labels in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = forward(model, tokens, labels)[1]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
        losses.append(loss.detach())
        optimizer.step()
    return torch.stack(losses)


def write_adapter(root, name, spec, seed):
    base, directory = root / name, root / "lora" / name
    batches = load_file(base / "golden.safetensors")
    model = adapted(base, spec, seed)
    model.save_pretrained(directory)
    (directory / "README.md").unlink(missing_ok=True)
    (directory / "adapter_model.safetensors").chmod(0o644)
    config = directory / "adapter_config.json"
    config.write_text(config.read_text().replace(str(base), name) + "\n")

    tokens, labels = batches["tokens"].long(), batches["labels"].long()
    logits, loss = forward(model, tokens, labels)
    loss.backward()
    golden = {"logits": logits[0, POSITIONS].detach().contiguous(), "loss": loss.detach()}
    for parameter_name, parameter in trainable(model):
        short = parameter_name.removeprefix("base_model.model.").replace(".default", "")
        golden["grad." + short] = parameter.grad.clone()
    steps = zip(batches["train_tokens"].long(), batches["train_labels"].long())
    golden["train_losses"] = train(model, steps)
    save_safetensors(golden, directory / "golden.safetensors")
    first, *_, last = golden["train_losses"].tolist()
    print(f"{name}: loss {loss:.6f}, in training {first:.4f} to {last:.4f}")


def main():
    torch.set_num_threads(1)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens"
    for seed, (name, spec) in enumerate(MODELS.items()):
        write_adapter(root, name, spec, 100 + seed)
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft)}
    manifest = {"generator": "tools/goldens/lora_goldens.py", **versions, "models": MODELS}
    write_json(root / "lora" / "manifest.json", manifest)


if __name__ == "__main__":
    main()
