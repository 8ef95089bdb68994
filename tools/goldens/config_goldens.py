#!/usr/bin/env python3
"""Writes tests/goldens/config_fields.json: what each key of a config.json changes in transformers.

For every field of the configuration class of each family, and for keys that files beside them carry,
a tiny model is read from a config.json with that one change, its weights are set by a formula of
name and element (see weights()), and it runs in f64 over fixed tokens. A row says what became of
it: the error of transformers, or loss, logits and the norm of the gradient, and which dropouts
training applies to tensors of which shape. README.md beside this file says how to run it.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import tempfile

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = [3, 17, 8, 0, 21, 5, 5, 28, 11, 2, 14, 9]
TARGETS = TOKENS[1:] + [4]
SHOWN_LOGITS = [0, 100, 200, 347]  # elements of [T * V]

LLAMA_LIKE = {
    "vocab_size": 29,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BASES = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **LLAMA_LIKE},
    "mistral": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "head_dim": 4,
        "sliding_window": 5,
        **LLAMA_LIKE,
    },
    "ministral": {
        "architectures": ["MinistralForCausalLM"],
        "model_type": "ministral",
        "head_dim": 4,
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        **LLAMA_LIKE,
    },
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **LLAMA_LIKE},
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 8,
        **LLAMA_LIKE,
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": 29,
        "n_embd": 16,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 16,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
    "gpt_neox": {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "vocab_size": 29,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 16,
        "rotary_pct": 0.5,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
}

# Values of a field other than that of the base, by name, else by the type of the default.
VALUES = {
    "hidden_size": [24, 18, 0],
    "n_embd": [24, 18],
    "num_hidden_layers": [2],
    "n_layer": [2],
    "num_attention_heads": [2, 3],
    "n_head": [2, 3],
    "num_key_value_heads": [1, 4, 3],
    "intermediate_size": [20],
    "n_inner": [20],
    "head_dim": [6, 5],
    "vocab_size": [31, 31.0],
    "max_position_embeddings": [8, 64],
    "n_positions": [12, 8],
    "hidden_act": [
        "swish", "gelu", "gelu_python", "gelu_new", "gelu_fast", "gelu_pytorch_tanh",
        "gelu_python_tanh", "gelu_accurate", "quick_gelu", "relu", "nothing",
    ],
    "initializer_range": [0.5, 2.0],
    "pad_token_id": [5, 28, 29, -1],
    "bos_token_id": [7],
    "eos_token_id": [7, [7, 8]],
    "pretraining_tp": [2],
    "tie_word_embeddings": [True, False],
    "attention_dropout": [0.25],
    "hidden_dropout": [0.25],
    "resid_pdrop": [0.25],
    "embd_pdrop": [0.25],
    "attn_pdrop": [0.25],
    "rms_norm_eps": [0.1],
    "layer_norm_eps": [0.1],
    "layer_norm_epsilon": [0.1],
    "sliding_window": [3, 20],
    "max_window_layers": [0, 1],
    "transformers_version": ["4.0.0"],
    "architectures": [
        ["LlamaForCausalLM"], ["MistralForCausalLM"], ["Qwen2ForCausalLM"], ["GPT2LMHeadModel"],
        ["GPTNeoXForCausalLM"], [],
    ],
    "dtype": ["float32"],
    "chunk_size_feed_forward": [2],
    "id2label": [{"0": "A"}],
    "label2id": [{"A": 0}],
    "problem_type": ["regression"],
    "summary_type": ["last"],
    "summary_activation": ["tanh"],
    "rope_parameters": [],
    "layer_types": [],
}
VALUES["activation_function"] = VALUES["hidden_act"]

SLIDING, FULL = "sliding_attention", "full_attention"
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 2.0,
    "original_max_position_embeddings": 8,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}


def without(values, key):
    return {k: v for k, v in values.items() if k != key}


ROPES = [
    {"rope_type": "default", "rope_theta": 100.0},
    {"type": "default"},
    {"rope_type": "default", "rope_theta": 100.0, "factor": 2.0},
    {},
    {"type": "linear", "factor": 4.0},
    {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0},
    {"rope_type": "linear"},
    {"rope_type": "linear", "factor": None},
    {"rope_type": "linear", "type": "default", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "dynamic"},
    LLAMA3,
    {"type": "llama3", **without(LLAMA3, "rope_type")},
    without(LLAMA3, "original_max_position_embeddings"),
    without(LLAMA3, "low_freq_factor"),
    without(LLAMA3, "high_freq_factor"),
    without(LLAMA3, "factor"),
    {**LLAMA3, "partial_rotary_factor": 0.5},
    YARN,
    {"type": "yarn", **without(YARN, "rope_type"), "finetuned": True},
    without(YARN, "original_max_position_embeddings"),
    without(YARN, "factor"),
    {**YARN, "factor": None},
    {**YARN, "attention_factor": 1.5},
    {**YARN, "mscale": 0.7, "mscale_all_dim": 0.4},
    {**YARN, "mscale": 0.7},
    {**YARN, "beta_fast": 2.0, "beta_slow": 0.25},
    {**YARN, "beta_fast": 2, "beta_slow": 0.25, "truncate": False},
    {**YARN, "partial_rotary_factor": 0.5},
    {"rope_type": "longrope", "factor": 2.0},
    {"rope_type": "proportional", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
    {"rope_type": "default", "partial_rotary_factor": 1.0},
    {"rope_type": "nothing"},
    {FULL: {"rope_type": "linear", "factor": 4.0}},
]

# Keys beside the fields, for every family with rotary positions.
ROPE_CHANGES = [
    *({"rope_scaling": rope} for rope in ROPES),
    *({"rope_parameters": rope} for rope in ROPES),
    {"rope_theta": 100.0},
    {"rope_theta": 100},
    {"rotary_emb_base": 100},
    {"rotary_pct": 0.25},
    {"partial_rotary_factor": 0.5},
    {"partial_rotary_factor": 0.5, "rope_scaling": LLAMA3},
    {"rope_theta": 100.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    {"rope_theta": 100.0, "rotary_emb_base": 300},
    {"rope_theta": 100.0, "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
    {"rope_scaling": YARN, "rope_parameters": {"rope_type": "default"}},
    {"rope_scaling": LLAMA3, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    {"rope_scaling": YARN, "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
    {"rope_scaling": {}, "rope_parameters": YARN},
    {"original_max_position_embeddings": 8},
    {"original_max_position_embeddings": 4, "rope_scaling": LLAMA3},
    {"original_max_position_embeddings": 4, "rope_scaling": YARN},
    {"original_max_position_embeddings": None, "rope_scaling": YARN},
    {"original_max_position_embeddings": 4, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    {"max_position_embeddings": 8, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    {"max_position_embeddings": 8, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
]

# Keys that no class has, or that other classes have.
OTHER_CHANGES = [
    {"model_type": "nothing"},
    {"is_causal": False},
    {"is_causal": True},
    {"is_causal": None},
    {"is_decoder": True},
    {"is_encoder_decoder": True},
    {"add_cross_attention": True},
    {"attention_bias": True},
    {"attention_bias": False},
    {"mlp_bias": True},
    {"head_dim": 6},
    {"head_dim": None},
    {"layer_types": [FULL] * 3},
    {"layer_types": [SLIDING, FULL, SLIDING]},
    {"layer_types": [SLIDING] * 3},
    {"layer_types": [FULL] * 2},
    {"layer_types": [FULL] * 4},
    {"layer_types": [FULL, "chunked_attention", FULL]},
    {"layer_types": [FULL, "nothing", FULL]},
    {"layer_types": None},
    {"layer_types": [FULL, SLIDING, SLIDING], "sliding_window": 4},
    {"layer_types": [FULL, SLIDING, SLIDING], "sliding_window": None},
    {"sliding_window": 4},
    {"use_sliding_window": True, "sliding_window": 4},
    {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0},
    {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2},
    {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0},
    {"use_sliding_window": True, "sliding_window": 4, "layer_types": [SLIDING, FULL, FULL]},
    {"use_sliding_window": True, "sliding_window": 4, "layer_types": [FULL] * 3},
    {"use_sliding_window": True, "sliding_window": 4, "layer_types": [FULL] * 5},
    {"use_sliding_window": True, "layer_types": [SLIDING, FULL, FULL], "sliding_window": None},
    {"head_dim": 4, "hidden_size": 18},
    {"pad_token_id": 5, "tie_word_embeddings": True},
    {"per_layer_config": {"0": {"num_key_value_heads": 4}}},
    {"quantization_config": {"quant_method": "nothing"}},
    {"pruned_heads": {"0": [1]}},
    {"n_ctx": 8},
    {"hidden_dropout_prob": 0.0},
    {"auto_map": {"AutoModelForCausalLM": "modeling_x.Model"}},
    {"task_specific_params": {"text-generation": {"do_sample": True}}},
    {"temperature": 0.5},
    {"nothing_known": 1},
]


def other_values(name, default):
    if name in VALUES:
        values = list(VALUES[name])
    elif isinstance(default, bool):
        values = [not default]
    elif isinstance(default, (int, float)):
        values = [default + 1]
    else:
        raise SystemExit(f"no value for the field {name}, whose default is {default!r}")
    return values + [None]


def changes_of(family):
    """Every change of the family's config.json, each once."""
    kind = AutoConfig.for_model(family).__class__
    changes = []
    for field in dataclasses.fields(kind):
        if not field.name.startswith("_"):
            changes += [{field.name: value} for value in other_values(field.name, field.default)]
    if family != "gpt2":
        changes += ROPE_CHANGES
    if "num_key_value_heads" in BASES[family]:
        changes += [{"model_type": other} for other in ("llama", "mistral", "qwen2")]
    changes += OTHER_CHANGES
    unique = {json.dumps(change, sort_keys=True): change for change in changes}
    return [change for change in unique.values() if not repeats(BASES[family], change)]


def repeats(base, change):
    return all(key in base and base[key] == value for key, value in change.items())


def weights(name, shape):
    """Element i of a tensor: a hash of name and i, uniform in [-0.5, 0.5), about 1 for norms."""
    seed = 1469598103934665603
    for byte in name.encode():
        seed = (seed ^ byte) * 1099511628211 % 2**64
    i = np.arange(math.prod(shape), dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = (i + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    values = (x >> np.uint64(40)).astype(np.float64) / 2.0**24 - 0.5
    if len(shape) == 1 and name.endswith("weight"):
        values += 1
    return torch.from_numpy(values.reshape(shape))


def stored_name(name):
    """The name in a file, which GPT-NeoX's published ones have otherwise."""
    return "embed_out.weight" if name == "lm_head.weight" else name


def set_weights(model, family):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            known = stored_name(name) if family == "gpt_neox" else name
            parameter.copy_(weights(known, tuple(parameter.shape)))


def dropouts_of(model):
    """Which dropouts training applies: [p, shape] of each, in order of their text."""
    seen = []
    plain = torch.nn.functional.dropout

    def recorded(x, p=0.5, training=True, inplace=False):
        if training and p > 0:
            seen.append([p, list(x.shape)])
        return plain(x, p, training, inplace)

    torch.nn.functional.dropout = recorded
    try:
        model.train()(input_ids=torch.tensor([TOKENS]))
    finally:
        torch.nn.functional.dropout = plain
        model.eval()
    return sorted(seen, key=json.dumps)


def alike(a, b):
    """Whether two results differ by rounding only."""
    if a.get("fails") or b.get("fails") or a.get("dropouts") != b.get("dropouts"):
        return a == b
    numbers = [[r["loss"], r["gradient_norm"], *r["logits"]] for r in (a, b)]
    return np.allclose(*numbers, rtol=1e-6, atol=1e-6) if len(set(map(len, numbers))) == 1 else False


def result_of(family, change):
    config = {**BASES[family], **change}
    with tempfile.TemporaryDirectory() as directory:
        (pathlib.Path(directory) / "config.json").write_text(json.dumps(config))
        try:
            read = AutoConfig.from_pretrained(directory)
            model = AutoModelForCausalLM.from_config(read, attn_implementation="eager")
            # What is refused when weights are loaded; from_config() does not look at it.
            if getattr(read, "quantization_config", None):
                return {"fails": "quantization_config"}
            # One kind of GPT-2's attention computes in f32 whatever it is given.
            model = model.eval() if config.get("reorder_and_upcast_attn") else model.double().eval()
            set_weights(model, family)
            logits = model(input_ids=torch.tensor([TOKENS]), return_dict=True).logits
            loss = torch.nn.functional.cross_entropy(logits[0], torch.tensor(TARGETS))
            loss.backward()
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            norm = torch.sqrt(sum((g**2).sum() for g in gradients))
            row = {
                "loss": round(float(loss.detach()), 9),
                "logits": [round(float(logits.detach().flatten()[i]), 7) for i in SHOWN_LOGITS
                           if i < logits.numel()],
                "gradient_norm": round(float(norm), 8),
            }
            if not all(math.isfinite(v) for v in [row["loss"], row["gradient_norm"]]):
                return {"fails": "results that are not finite"}
            if dropouts := dropouts_of(model):
                row["dropouts"] = dropouts
            return row
        except Exception as error:  # noqa: BLE001 - whatever transformers raises is the result
            return {"fails": type(error).__name__}


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests/goldens")
    parser.add_argument("--families", nargs="+", choices=BASES, default=list(BASES))
    arguments = parser.parse_args()
    file = arguments.out / "config_fields.json"
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    # The rows of other families stay.
    families = json.loads(file.read_text())["families"] if file.exists() else {}
    for family in arguments.families:
        base = BASES[family]
        same = result_of(family, {})
        rows = []
        for change in changes_of(family):
            row = result_of(family, change)
            rows.append({"change": change, **({"same": True} if alike(row, same) else row)})
        families[family] = {"base": base, "result": same, "rows": rows}
        print(family, len(rows), "rows,", sum("fails" in row for row in rows), "of them fail")
    golden = {
        "generator": "tools/goldens/config_goldens.py",
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "tokens": TOKENS,
        "targets": TARGETS,
        "shown_logits": SHOWN_LOGITS,
        "families": {family: families[family] for family in BASES if family in families},
    }
    # A line a row.
    lines = json.dumps(golden, separators=(",", ":")).replace('{"change":', '\n{"change":')
    file.write_text(lines + "\n")


if __name__ == "__main__":
    main()
