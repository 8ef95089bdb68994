#!/usr/bin/env python3
"""Takes low-rank adapters of every family from tessera to PEFT and from PEFT to tessera.

    tools/oracle/lora_round_trip.py --tessera build/release/tessera [--families gpt2 llama] [--keep DIR]

For each family a tiny model with random weights is saved by transformers. tessera trains adapters
for ten steps, which PEFT loads, and PEFT makes adapters with its default targets, which tessera
loads. Compared are the validation losses of both programs, the text that both write with
temperature 0, and the weights of the merged models. Exit status 1 if anything differs. README.md
beside this file says where to run it.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file

from hub_round_trip import (
    FAMILIES,
    PROMPT,
    STEPS,
    Trip,
    greedy_text,
    load,
    make_model,
    make_text,
    make_tokenizer,
    validation_loss,
)

ADAPTED = [name for name in FAMILIES if name != "ministral"]  # for which PEFT has no default targets


def compare_merged(trip, model, directory):
    """The merged models: largest difference of a weight, relative to the largest of its tensor."""
    model.merge_and_unload().save_pretrained(trip.work / "theirs_merged")
    theirs = load_file(trip.work / "theirs_merged" / "model.safetensors")
    ours = load_file(directory / "model.safetensors")
    worst = 0.0
    for name, tensor in ours.items():
        other = theirs[name]
        worst = max(worst, ((tensor - other).abs().max() / other.abs().max()).item())
    trip.expect("weights of the merged model", worst < 1e-6, f"{worst:.1e} apart")


def compare_text(trip, model, tokenizer, words, what, joined):
    ours = trip.run("generate", *words, "--prompt", PROMPT, "--temperature", 0, "--max_new_tokens", 20, "--bf16", 0)
    theirs = greedy_text(model, tokenizer, 20, joined).replace("\r", "\n")  # as Python reads output
    trip.expect(f"text with temperature 0 of {what}", ours.stdout.rstrip("\n") == theirs, repr(theirs))


def to_peft(trip, ids, tokenizer, more):
    words = ["--lora_rank", 4, *more, "--max_steps", STEPS, "--checkpoint_dir", "ckpt"]
    loss = trip.train("before", *words, "--save_final_model", 1, "--model_dir", "adapter")
    model = PeftModel.from_pretrained(load(trip.work / "before"), trip.work / "adapter")
    trip.close(f"loss after {STEPS} steps", loss, validation_loss(model, ids))
    compare_text(trip, model, tokenizer, ["ckpt"], "the checkpoint", True)
    trip.run("export", "ckpt", "merged", "--merge_adapter", 1)
    compare_merged(trip, model, trip.work / "merged")


def from_peft(trip, ids, tokenizer):
    torch.manual_seed(9)
    model = get_peft_model(load(trip.work / "before"), LoraConfig(task_type="CAUSAL_LM", r=3, lora_alpha=5)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(trip.work / "theirs")
    loss = trip.train("before", "--lora_adapter", "theirs", "--eval_only", 1)
    trip.close("loss with PEFT's adapter", loss, validation_loss(model, ids))
    words = ["before", "--lora_adapter", "theirs"]
    compare_text(trip, model, tokenizer, words, "the base with PEFT's adapter", False)
    trip.train("before", "--lora_rank", 3, "--max_steps", 0, "--save_final_model", 1, "--model_dir", "usual")
    configs = [json.loads((trip.work / d / "adapter_config.json").read_text()) for d in ("theirs", "usual")]
    names = [sorted(config["target_modules"]) for config in configs]
    trip.expect("default targets", names[0] == names[1], " ".join(names[0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", type=pathlib.Path, required=True)
    parser.add_argument("--families", nargs="+", choices=ADAPTED, default=ADAPTED)
    parser.add_argument("--keep", type=pathlib.Path, help="directory that keeps all that was made")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    root = arguments.keep or pathlib.Path(tempfile.mkdtemp())
    text, held_out = make_text(4000, 1), make_text(200, 2)
    tokenizer = make_tokenizer(text)
    ids = tokenizer(held_out)["input_ids"] + [tokenizer.eos_token_id]
    failures = []
    for number, name in enumerate(arguments.families):
        print(name)
        trip = Trip(arguments.tessera.resolve(), name, root / name)
        trip.work.mkdir(parents=True)
        (trip.work / "text.txt").write_text(text)
        (trip.work / "held_out.txt").write_text(held_out)
        make_model(*FAMILIES[name][:2], trip.work / "before", *FAMILIES[name][2:])
        tokenizer.save_pretrained(trip.work / "before")
        ways = (["--lora_targets", "all-linear"], ["--use_rslora", 1], ["--lora_alpha", 3])
        to_peft(trip, ids, tokenizer, ways[number % 3])
        from_peft(trip, ids, tokenizer)
        failures += [f"{name}: {what}" for what in trip.failures]
    if not arguments.keep:
        shutil.rmtree(root)
    print("all agree" if not failures else "differences: " + "; ".join(failures))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
