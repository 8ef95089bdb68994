#!/usr/bin/env python3
"""Writes the reference values under tests/goldens/ that tessera's Llama is compared with.

Three tiny models with random weights run in Hugging Face transformers (f32, eager attention, one
thread): logits, loss, the gradient of every parameter and the losses of 20 AdamW steps. README.md
beside this file lists every file and tensor, and how to run this program.
"""

import argparse
import json
import pathlib

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

BATCH = 2
CONTEXT = 48
IGNORED = -100
STEPS = 20
DISTINCT_BATCHES = 4  # seen five times each, so that the loss falls
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8}
WEIGHT_DECAY = 0.1  # on matrices and embeddings; 0 on norm weights
MAX_GRAD_NORM = 1.0


def llama3_rope(original_context):
    return {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original_context,
    }


# With a head width of 16 and 64 original positions, as with 24 and 32, the frequencies fall in all
# three branches of the Llama-3 rule: kept, blended and divided.
MODELS = {
    "llama2_tiny": {
        "seed": 2,
        "hidden_size": 64,
        "intermediate_size": 176,
        "vocab_size": 256,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
        "max_position_embeddings": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "llama31_tiny": {
        "seed": 31,
        "hidden_size": 64,
        "intermediate_size": 160,
        "vocab_size": 251,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "max_position_embeddings": 512,
        "rope_parameters": llama3_rope(64),
    },
    "llama32_tiny": {
        "seed": 32,
        "hidden_size": 64,
        "intermediate_size": 176,
        "vocab_size": 256,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "tie_word_embeddings": True,
        "max_position_embeddings": 256,
        "rope_parameters": llama3_rope(32),
    },
}

# Shapes of published models, for the rotary frequencies alone.
ROPE_REFERENCES = {
    "llama31_rope_inv_freq.json": {"head_dim": 128, "factor": 8.0},
    "llama32_rope_inv_freq.json": {"head_dim": 64, "factor": 32.0},
}


def build_model(spec):
    """A model whose weights make every part matter.

    Matrices are wide enough (0.15) for attention to be far from uniform, and norm weights differ
    from 1, so that a wrong rotation, mask, scale or epsilon shows in the logits.
    """
    seed = spec["seed"]
    config = LlamaConfig(
        num_hidden_layers=2,
        num_attention_heads=4,
        rms_norm_eps=1e-5,
        initializer_range=0.15,
        use_cache=False,
        **{key: value for key, value in spec.items() if key != "seed"},
    )
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).float().train()
    randomize_vectors(model)
    return model


def randomize_vectors(model):
    """Moves norm weights away from 1, and biases from 0."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn_like(parameter)


def random_batch(generator, vocab):
    """Tokens and targets [B, T]: target t is token t + 1; some are ignored, as is row 1's end."""
    ids = generator.integers(0, vocab, size=(BATCH, CONTEXT + 1))
    targets = ids[:, 1:].copy()
    targets[generator.random(targets.shape) < 0.1] = IGNORED
    targets[1, CONTEXT - 7 :] = IGNORED
    return torch.from_numpy(ids[:, :-1].copy()), torch.from_numpy(targets)


def forward(model, tokens, targets):
    """Logits [B, T, V] and the mean loss over the targets that are not ignored."""
    logits = model(input_ids=tokens).logits
    loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    return logits, loss


def record_gradients(model, tokens, targets):
    logits, loss = forward(model, tokens, targets)
    loss.backward()
    tensors = {
        "tokens": tokens.int(),
        "labels": targets.int(),
        "logits": logits.detach().contiguous(),
        "loss": loss.detach(),
    }
    # Where a file does not hold what the module has: another name, another layout.
    renamed = getattr(model, "renamed", {})
    as_stored = getattr(model, "as_stored", lambda name, tensor: tensor)
    for name, parameter in model.named_parameters():
        tensors["grad." + renamed.get(name, name)] = as_stored(name, parameter.grad).clone()
    return tensors


def record_training(model, batches):
    """Loss before each update and global gradient norm before clipping, for STEPS AdamW steps."""
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
        ],
        **ADAMW,
    )
    losses, norms = [], []
    for tokens, targets in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = forward(model, tokens, targets)[1]
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM))
        losses.append(loss.detach())
        optimizer.step()
    return {
        "train_tokens": torch.stack([tokens for tokens, _ in batches]).int(),
        "train_labels": torch.stack([targets for _, targets in batches]).int(),
        "train_losses": torch.stack(losses),
        "train_grad_norms": torch.stack(norms),
    }


def published_config(config):
    """The same configuration in the form in which Meta's models are published.

    transformers 5 writes `rope_parameters` and `dtype`; the published files carry `rope_theta`,
    `rope_scaling` and `torch_dtype`, and `head_dim` only where it is not hidden_size / heads.
    """
    old = dict(config)
    rope = dict(old.pop("rope_parameters"))
    old["torch_dtype"] = old.pop("dtype")
    old["rope_theta"] = rope.pop("rope_theta")
    old["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    if old["head_dim"] * old["num_attention_heads"] == old["hidden_size"]:
        del old["head_dim"]
    return dict(sorted(old.items()))


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def save_safetensors(tensors, path):
    save_file(tensors, path)
    path.chmod(0o644)


def record(directory, model, seed, vocab_size, check=lambda golden: None):
    """Writes golden.safetensors; `check` sees it while the weights are those of the file."""
    generator = np.random.default_rng(seed)
    tokens, targets = random_batch(generator, vocab_size)
    golden = record_gradients(model, tokens, targets)
    check(golden)

    distinct = [random_batch(generator, vocab_size) for _ in range(DISTINCT_BATCHES)]
    batches = [distinct[step % DISTINCT_BATCHES] for step in range(STEPS)]
    golden.update(record_training(model, batches))
    save_safetensors(golden, directory / "golden.safetensors")
    first, *_, last = golden["train_losses"].tolist()
    print(f"{directory.name}: loss {golden['loss']:.6f}, in training {first:.4f} to {last:.4f}")


def write_model(directory, spec):
    directory.mkdir(parents=True, exist_ok=True)
    model = build_model(spec)
    # transformers' own writer, so that names, tied weights and config.json are as users meet them.
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    (directory / "model.safetensors").chmod(0o644)

    config = json.loads((directory / "config.json").read_text())
    write_json(directory / "config_published.json", published_config(config))
    record(
        directory,
        model,
        spec["seed"],
        spec["vocab_size"],
        lambda golden: check_published_config(directory, model, golden),
    )


def check_published_config(directory, model, golden):
    """transformers must read the published form as the same model, or the file is of no use."""
    config = LlamaConfig.from_json_file(directory / "config_published.json")
    config._attn_implementation = "eager"
    same = LlamaForCausalLM(config)
    same.load_state_dict(model.state_dict())
    logits = forward(same, golden["tokens"].long(), golden["labels"].long())[0]
    if not torch.equal(logits, golden["logits"]):
        raise SystemExit(f"{directory.name}: config_published.json describes another model")


def rope_reference(head_dim, factor):
    rope = llama3_rope(8192) | {"factor": factor}
    config = LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        max_position_embeddings=131072,
        rope_parameters=rope,
    )
    model = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    plain = model.compute_default_rope_parameters(config)[0]
    return {
        "head_dim": head_dim,
        **rope,
        "inv_freq": model.inv_freq.tolist(),
        "inv_freq_without_scaling": plain.tolist(),
    }


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/goldens")
    out = parser.parse_args().out

    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, spec in MODELS.items():
        write_model(out / name, spec)
    for name, shape in ROPE_REFERENCES.items():
        write_json(out / name, rope_reference(**shape))
    write_json(
        out / "manifest.json",
        {
            "generator": "tools/goldens/llama_goldens.py",
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
            "seeds": {name: spec["seed"] for name, spec in MODELS.items()},
            "batch": BATCH,
            "context": CONTEXT,
            "ignore_index": IGNORED,
            "adamw": ADAMW | {"weight_decay": WEIGHT_DECAY, "max_grad_norm": MAX_GRAD_NORM},
            "steps": STEPS,
        },
    )


if __name__ == "__main__":
    main()
