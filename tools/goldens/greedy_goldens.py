#!/usr/bin/env python3
"""Writes tests/goldens/greedy.json: what the tiny models under tests/goldens/ say when the likeliest
token is taken every time.

Every folder with config.json and model.safetensors is loaded by Hugging Face transformers (f32, eager
attention, one thread) and continues prompts of random tokens by generate(do_sample=False), up to the
model's context. Of CANDIDATES prompts that with the most different tokens behind it is taken, among
those on whose way the best two logits stay MARGIN of the largest one apart: rounding must not decide.
Folders of models that transformers does not have are left out.
"""

import argparse
import json
import pathlib

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

PROMPTS = [1, 5, 17]  # tokens
LONGEST = 64  # prompt and continuation
CANDIDATES = 12
MARGIN = 1e-3


def load(folder):
    """The model, or None if it has parameters that the files lack."""
    model, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    if report["missing_keys"]:
        return None
    model.eval()
    for name in ("eos_token_id", "bos_token_id", "pad_token_id"):
        setattr(model.generation_config, name, None)
    return model


def continue_greedily(model, prompt, length):
    """The ids behind the prompt, and the least distance between the best two logits on the way."""
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        max_new_tokens=length - len(prompt),
        output_logits=True,
        return_dict_in_generate=True,
    )
    logits = torch.cat(out.logits)
    best = logits.topk(2).values
    margin = ((best[:, 0] - best[:, 1]) / logits.abs().amax(-1)).min().item()
    return out.sequences[0, len(prompt) :].tolist(), margin


def texts_of(model, seed):
    generator = np.random.default_rng(seed)
    length = min(LONGEST, model.config.max_position_embeddings)
    texts = []
    for size in PROMPTS:
        found = []
        for _ in range(CANDIDATES):
            prompt = generator.integers(0, model.config.vocab_size, size=size).tolist()
            ids, margin = continue_greedily(model, prompt, length)
            if margin >= MARGIN:
                found.append({"prompt": prompt, "continuation": ids})
        texts.append(max(found, key=lambda text: len(set(text["continuation"]))))
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--goldens", type=pathlib.Path, default=root / "tests" / "goldens")
    parser.add_argument("--models", nargs="+", help="the others stay as they are in the file")
    arguments = parser.parse_args()
    folder = arguments.goldens
    torch.set_num_threads(1)
    folders = {file.parent.name: file.parent for file in folder.glob("*/model.safetensors")}
    models = {}
    if arguments.models:
        absent = set(arguments.models) - set(folders)
        if absent:
            parser.error(f"no folder of a model: {', '.join(sorted(absent))}")
        models = json.loads((folder / "greedy.json").read_text())["models"]
    for name in arguments.models or folders:
        models.pop(name, None)
        model = load(folders[name])
        if model:
            models[name] = texts_of(model, seed=7)
    golden = {
        "generator": "tools/goldens/greedy_goldens.py",
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "margin": MARGIN,
        "models": dict(sorted(models.items())),
    }
    (folder / "greedy.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
