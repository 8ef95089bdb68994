#!/usr/bin/env python3
"""Writes the reference values under tests/goldens/ of the families beside Llama.

As llama_goldens.py, whose recording it shares: tiny models with random weights run in Hugging Face
transformers (f32, eager attention, one thread, no dropout). gpt2_exact_tiny is no model of
transformers: its oracle is the module in gpt2_exact.py. README.md beside this file lists every file
and tensor, and how to run this program.
"""

import argparse
import pathlib

import torch
import transformers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    MinistralConfig,
    MinistralForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from gpt2_exact import Gpt2Exact
from llama_goldens import randomize_vectors, record, save_safetensors, write_json

LLAMA_LIKE = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 112,
    "vocab_size": 251,
    "max_position_embeddings": 64,
}
GPT2 = {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 251}
NEOX = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 192,
    "vocab_size": 251,
    "max_position_embeddings": 64,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
    },
}

SMALL = {**LLAMA_LIKE, "hidden_size": 32, "intermediate_size": 56, "vocab_size": 101}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "beta_fast": 2.0,
    "beta_slow": 0.25,
    "original_max_position_embeddings": 16,
}

# Windows are 48 tokens long: the attention of mistral_tiny sees a third of one. Half of a head of
# 12 rotates in GPT-NeoX.
MODELS = {
    "gpt2_tiny": (GPT2LMHeadModel, GPT2Config(**GPT2), 21),
    "gpt2_exact_tiny": (Gpt2Exact, GPT2Config(activation_function="gelu", **GPT2), 22),
    "gpt_neox_tiny": (GPTNeoXForCausalLM, GPTNeoXConfig(**NEOX), 41),
    "gpt_neox_sequential_tiny": (
        GPTNeoXForCausalLM,
        GPTNeoXConfig(use_parallel_residual=False, **NEOX),
        42,
    ),
    "mistral_tiny": (MistralForCausalLM, MistralConfig(sliding_window=16, **LLAMA_LIKE), 51),
    "qwen2_tiny": (Qwen2ForCausalLM, Qwen2Config(tie_word_embeddings=True, **LLAMA_LIKE), 61),
    # Windows in some layers, rotary positions stretched, an id whose embedding gets no gradient.
    "ministral_tiny": (
        MinistralForCausalLM,
        MinistralConfig(
            head_dim=8,
            sliding_window=16,
            layer_types=["full_attention", "sliding_attention"],
            rope_parameters=YARN,
            pad_token_id=7,
            **SMALL,
        ),
        71,
    ),
    "qwen2_window_tiny": (
        Qwen2ForCausalLM,
        Qwen2Config(
            use_sliding_window=True,
            sliding_window=8,
            max_window_layers=1,
            rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
            **SMALL,
        ),
        72,
    ),
    "gpt_neox_yarn_tiny": (
        GPTNeoXForCausalLM,
        GPTNeoXConfig(
            **{
                **NEOX,
                "hidden_size": 32,
                "intermediate_size": 72,
                "vocab_size": 101,
                "hidden_act": "gelu_python",
                "rope_parameters": {**YARN, "partial_rotary_factor": 0.5},
            }
        ),
        73,
    ),
    # Heads that are wider than their share of the model; then narrower, with biases and a window.
    "qwen3_tiny": (
        Qwen3ForCausalLM,
        Qwen3Config(head_dim=16, tie_word_embeddings=True, **LLAMA_LIKE),
        81,
    ),
    "qwen3_window_tiny": (
        Qwen3ForCausalLM,
        Qwen3Config(
            head_dim=6,
            attention_bias=True,
            use_sliding_window=True,
            sliding_window=8,
            max_window_layers=1,
            rope_parameters=YARN,
            **SMALL,
        ),
        82,
    ),
}


def write_model(directory, kind, config, seed):
    directory.mkdir(parents=True, exist_ok=True)
    config.initializer_range = 0.15
    config.use_cache = False
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = kind(config).float().eval()  # eval: dropout is off
    randomize_vectors(model)
    if kind is GPTNeoXForCausalLM:
        model.renamed = {"lm_head.weight": "embed_out.weight"}
    if kind is Gpt2Exact:
        config.architectures = ["GPT2LMHeadModel"]
        config.save_pretrained(directory)
        save_safetensors(model.tensors(), directory / "model.safetensors")
    else:
        model.save_pretrained(directory)
        (directory / "generation_config.json").unlink(missing_ok=True)
        (directory / "model.safetensors").chmod(0o644)
    record(directory, model, seed, config.vocab_size)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/goldens")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    out = arguments.out

    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in arguments.models:
        write_model(out / name, *MODELS[name])
    write_json(
        out / "families.json",
        {
            "generator": "tools/goldens/family_goldens.py",
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
            "seeds": {name: seed for name, (_, _, seed) in MODELS.items()},
        },
    )


if __name__ == "__main__":
    main()
