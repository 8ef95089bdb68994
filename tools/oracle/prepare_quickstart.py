#!/usr/bin/env python3
"""Makes what train_llama.py needs to repeat ./quickstart, from a finished run of it.

    tools/oracle/prepare_quickstart.py RUN_DIRECTORY OUTPUT_DIRECTORY [--short]

Needs the built program (build/release/tessera, or --tessera) and g++, and no Python packages. The
job is read from the quickstart script itself. README.md beside this file says what is written.
"""

import argparse
import json
import math
import pathlib
import shlex
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The script's runs, the second on machines with slower kernels: steps, and PyTorch's curve.
GOLDENS = {False: (1200, "tests/goldens/quickstart_pytorch.json"),
           True: (400, "tests/goldens/quickstart_short_pytorch.json")}
# Options of the script that change no number of the run, or only its rounding.
WITHOUT_EFFECT = {"activation_checkpointing", "compare_baselines", "cpu_isa", "logging_freq",
                  "validation_freq"}


def quickstart_options(text, short=False):
    """Options of `tessera train` in the text of the quickstart script: name -> word."""
    lines = text.replace("\\\n", " ").splitlines()
    commands = [line for line in lines if line.startswith('"$tessera" train ')]
    if len(commands) != 1:
        sys.exit(f"quickstart: {len(commands)} lines call tessera train, not one")
    steps, golden = GOLDENS[short]
    if f"steps={steps} golden={golden}\n" not in text:
        sys.exit(f"quickstart: it has no run of {steps} steps with {golden}")
    variables = {"$steps": str(steps), "$isa": "auto"}
    words = [variables.get(word, word) for word in shlex.split(commands[0])[2:]]
    return {name.removeprefix("--"): word for name, word in zip(words[::2], words[1::2])}


def job_of(options):
    """What decides the numbers of the run: all options but places and output, as they are given."""
    return {name: word for name, word in sorted(options.items())
            if "$" not in word and name not in WITHOUT_EFFECT}


def model_config(options):
    """The model as transformers describes it; epsilon and rope are those of --model_type llama_v2."""
    if options["model_type"] != "llama_v2":
        sys.exit(f"quickstart: no config.json is known for --model_type {options['model_type']}")
    width, heads = int(options["hidden_width"]), int(options["num_heads"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": int(options["vocab_size"]),
        "hidden_size": width,
        "num_hidden_layers": int(options["num_layers"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(options["num_key_value_heads"]),
        "head_dim": width // heads,
        "intermediate_size": int(options["intermediate_size"]),
        "max_position_embeddings": int(options["max_context_width"]),
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": options["tie_word_embeddings"] == "1",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
    }


def learning_rates(options):
    """tessera's default schedule, a cosine behind a linear warm-up that begins with 0."""
    steps, peak = int(options["max_steps"]), float(options["lr"])
    warmup, lowest = float(options["warmup"]) * steps, float(options["min_lr"])
    rates = []
    for step in range(steps):
        done = min(step, steps - warmup)
        if warmup > 0 and step <= warmup:
            rates.append(peak * done / warmup)
        else:
            cosine = math.cos(math.pi * (done - warmup) / steps)
            rates.append(max(peak / 2 * (cosine + 1), lowest))
    return rates


def write_initial_checkpoint(tessera, options, run, output):
    """One step of rate 0 (a warm-up of the whole run begins there): its weights are the first ones.

    Tokenizes both texts into a cache of its own on the way. Returns the checkpoint.
    """
    changed = {
        "max_steps": "1", "warmup": "1", "compare_baselines": "0", "run_validation": "0",
        "val_batch_size": "1", "cache_dir": str(output / "cache"),
        "checkpoint_dir": str(output / "initial"), "metrics_file": str(output / "initial.jsonl"),
    }
    given = {name: word.replace("$run", str(run)) for name, word in options.items()}
    words = [f"--{name}={word}" for name, word in (given | changed).items()]
    subprocess.run([tessera, "train", *words], check=True)
    return output / "initial" / f"{options['model_type']}-1steps"


def weights_only(state):
    """The model's tensors of a checkpoint as a safetensors file, by name."""
    size = struct.unpack("<Q", state[:8])[0]
    header, body = json.loads(state[8 : 8 + size]), state[8 + size :]
    entries, parts, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(header):
        if not name.startswith(("model.", "lm_head.")):
            continue
        begin, end = header[name]["data_offsets"]
        entries[name] = header[name] | {"data_offsets": [at, at + end - begin]}
        parts.append(body[begin:end])
        at += end - begin
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def token_ids(cache):
    """The ids of a token cache: src/data/token_cache.h says how the file is laid out."""
    data = cache.read_bytes()
    magic, version, width, count = struct.unpack("<8sIIQ", data[-96:-72])
    if (magic, version, width) != (b"TSRTOKEN", 2, 2):
        sys.exit(f"{cache}: not a token cache of version 2 with ids of two bytes")
    return data[: count * width]


def window_order(options, tokens, output):
    """Windows in the order of training: what the C++ code says, compiled here."""
    program = output / "sample_order"
    sources = ("tools/oracle/sample_order.cpp", "src/data/sample_order.cpp", "src/base/error.cpp",
               "src/base/text.cpp")
    subprocess.run(["g++", "-std=c++20", "-O2", "-Isrc", *sources, "-o", program.resolve()],
                   check=True, cwd=ROOT)
    windows = math.ceil((tokens - 1) / int(options["max_context_width"]))
    count = int(options["max_steps"]) * int(options["train_batch_size"])
    words = [program.resolve(), options["seed"], str(windows), str(count)]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout


def command(options, output, golden):
    words = [f"--{name} {output / file}" for name, file in (
        ("config", "config.json"), ("weights", "init.safetensors"),
        ("train_ids", "train_ids.bin"), ("val_ids", "val_ids.bin"), ("order", "order.bin"),
        ("lr_file", "lr.txt"), ("job", "job.json"))]
    words += [f"--steps {options['max_steps']}", f"--batch_size {options['train_batch_size']}",
              f"--context {options['max_context_width']}"]
    words += [f"--precision {'bf16' if options['bf16'] == '1' else 'f32'}"]
    words += [f"--{name} {options[name]}" for name in ("beta2", "weight_decay", "grad_clip")]
    words += [f"--out {golden}"]
    return " ".join(["tools/oracle/train_llama.py", *words])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, help="quickstart-run, of a finished ./quickstart")
    parser.add_argument("output", type=pathlib.Path, help="directory to write into")
    parser.add_argument("--short", action="store_true", help="the run of fewer steps")
    parser.add_argument("--tessera", default=ROOT / "build/release/tessera", help="the program")
    args = parser.parse_args()
    options = quickstart_options((ROOT / "quickstart").read_text(), args.short)
    if args.output.exists():
        sys.exit(f"{args.output} exists: give a new directory, old token caches would be taken for new")
    args.output.mkdir(parents=True)

    checkpoint = write_initial_checkpoint(args.tessera, options, args.run, args.output)
    caches = sorted((args.output / "cache").glob("tokens-*.bin"), key=lambda p: p.stat().st_size)
    if len(caches) != 2:
        sys.exit(f"{args.output / 'cache'}: {len(caches)} token caches instead of two")
    validation, training = (token_ids(cache) for cache in caches)  # the training text is longer
    rates = learning_rates(options)
    for name, content in (
        ("config.json", json.dumps(model_config(options)).encode()),
        ("init.safetensors", weights_only((checkpoint / "state.safetensors").read_bytes())),
        ("train_ids.bin", training),
        ("val_ids.bin", validation),
        ("order.bin", window_order(options, len(training) // 2, args.output)),
        ("lr.txt", "".join(f"{rate!r}\n" for rate in rates).encode()),
        ("job.json", (json.dumps(job_of(options), indent=1) + "\n").encode()),
    ):
        (args.output / name).write_bytes(content)
    print(command(options, args.output, GOLDENS[args.short][1]))


if __name__ == "__main__":
    main()
