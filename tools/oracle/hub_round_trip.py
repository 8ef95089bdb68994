#!/usr/bin/env python3
"""Takes models of every family from transformers to tessera, through training steps, and back.

    tools/oracle/hub_round_trip.py --tessera build/release/tessera [--families gpt2 llama] [--keep DIR]

For each family a tiny model with random weights is saved by transformers, with a tokenizer. Then
tessera evaluates it, trains it for ten steps and writes it, and transformers loads what was written.
Compared are the validation losses of both programs before and after, the text that both write with
temperature 0, the ids of the tokenizers, the names of the tensors, and the weights of an export in
bf16. Exit status 1 if anything differs. README.md beside this file says where to run it.
"""

import argparse
import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import tiktoken
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

CONTEXT = 32
VOCABULARY = 320
STEPS = 10
LLAMA3_RANKS = 128000
TOLERANCE = 2e-5  # of losses, relative: both programs sum in f32, in other orders
END = "<|endoftext|>"
PROMPT = "the quick brown"

SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 160,
    "max_position_embeddings": 64,
    "initializer_range": 0.1,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
# How the weights are saved: the dtype, and the size of a file.
FAMILIES = {
    "llama": ("LlamaConfig", {"num_key_value_heads": 2}, "float32", "5GB"),
    "llama3": (
        "LlamaConfig",
        {"num_key_value_heads": 2, "tie_word_embeddings": True, "head_dim": 24, "rope_parameters": LLAMA3_ROPE},
        "bfloat16",
        "40KB",
    ),
    "mistral": ("MistralConfig", {"num_key_value_heads": 2, "sliding_window": 8}, "float16", "60KB"),
    "qwen2": ("Qwen2Config", {"num_key_value_heads": 4}, "bfloat16", "5GB"),
    "qwen3": ("Qwen3Config", {"num_key_value_heads": 2, "head_dim": 24}, "bfloat16", "60KB"),
    "gpt2": ("GPT2Config", {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, "float32", "100KB"),
    "gpt_neox": ("GPTNeoXConfig", {}, "float16", "5GB"),
    "ministral": (
        "MinistralConfig",
        {
            "num_key_value_heads": 2,
            "head_dim": 16,
            "sliding_window": 8,
            "layer_types": ["full_attention", "sliding_attention"],
            "rope_parameters": YARN_ROPE,
        },
        "float32",
        "5GB",
    ),
    "qwen2_window": (
        "Qwen2Config",
        {
            "num_key_value_heads": 4,
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 1,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        },
        "float32",
        "5GB",
    ),
    "gpt_neox_yarn": (
        "GPTNeoXConfig",
        {"rope_parameters": {**YARN_ROPE, "partial_rotary_factor": 0.5}, "hidden_act": "gelu_python"},
        "float32",
        "5GB",
    ),
}


def make_text(words, seed):
    generator = torch.Generator().manual_seed(seed)
    vocabulary = "the quick brown fox jumps over lazy dogs and cats while birds sing of spring".split()
    picks = torch.randint(len(vocabulary), (words,), generator=generator).tolist()
    return " ".join(vocabulary[i] for i in picks)


def make_tokenizer(text):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 10, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([text], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END)


def make_model(class_name, more, directory, dtype, shard_size):
    """A random model whose every part matters, saved in the given dtype."""
    shape = SMALL | more
    if class_name == "GPT2Config":  # its own name for it
        shape["n_inner"] = shape.pop("intermediate_size")
    config = getattr(transformers, class_name)(**shape)
    config._attn_implementation = "eager"
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn_like(parameter)
    model.to(getattr(torch, dtype)).save_pretrained(directory, max_shard_size=shard_size)


def load(directory):
    return AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    ).eval()


@torch.no_grad()
def validation_loss(model, ids):
    """Token mean over consecutive windows, as tessera cuts them."""
    total, count = 0.0, 0
    for begin in range(0, len(ids) - 1, CONTEXT):
        window = ids[begin : begin + CONTEXT]
        targets = ids[begin + 1 : begin + CONTEXT + 1]
        logits = model(input_ids=torch.tensor([window[: len(targets)]])).logits[0]
        total += cross_entropy(logits, torch.tensor(targets), reduction="sum").item()
        count += len(targets)
    return total / count


@torch.no_grad()
def greedy_text(model, tokenizer, new_tokens, joined=True):
    """`joined`: as what was trained on documents with an end of text between them."""
    ids = [tokenizer.eos_token_id] * joined + tokenizer(PROMPT)["input_ids"]
    made = []
    for _ in range(new_tokens):
        logits = model(input_ids=torch.tensor([ids + made])).logits[0, -1, : len(tokenizer)]
        made.append(int(logits.argmax()))
        if made[-1] == tokenizer.eos_token_id:
            made.pop()
            break
    return PROMPT + tokenizer.decode(made)


class Trip:
    def __init__(self, tessera, name, work):
        self.tessera, self.name, self.work = tessera, name, work
        self.failures = []

    def expect(self, what, ok, detail=""):
        print(f"  {'ok  ' if ok else 'FAIL'} {what}{': ' if detail else ''}{detail}")
        if not ok:
            self.failures.append(what)

    def close(self, what, ours, theirs):
        difference = abs(ours - theirs) / theirs
        self.expect(what, difference < TOLERANCE, f"{ours:.6f} and {theirs:.6f}, {difference:.1e} apart")

    def run(self, *words):
        done = subprocess.run(
            [self.tessera, *map(str, words)], cwd=self.work, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"tessera {' '.join(map(str, words))}:\n{done.stderr}")
        return done

    def train(self, model, *more):
        words = ["--hf_model", model, "--dataset", "text.txt", "--validation_dataset", "held_out.txt"]
        words += ["--max_context_width", CONTEXT, "--bf16", 0, "--validation_batches", 1000, "--lr", 0.01]
        words += ["--lr_decay_iters", STEPS, "--train_batch_size", 4, *more]
        log = self.run("train", *words).stderr
        return float(re.findall(r"Validation loss: ([0-9.]+)", log)[-1])


def compare_bf16(trip, full, half):
    full, half = load_file(full), load_file(half)
    equal = full.keys() == half.keys() and all(
        torch.equal(full[name].to(torch.bfloat16), half[name]) for name in full
    )
    trip.expect("an export in bf16 is the rounded model", equal)


def round_trip(trip, class_name, more, dtype, shard_size, tokenizer):
    before, after = trip.work / "before", trip.work / "after"
    make_model(class_name, more, before, dtype, shard_size)
    tokenizer.save_pretrained(before)
    held_out = (trip.work / "held_out.txt").read_text()
    ids = tokenizer(held_out)["input_ids"] + [tokenizer.eos_token_id]

    trip.close("loss as imported", trip.train("before", "--eval_only", 1), validation_loss(load(before), ids))
    loss = trip.train(
        "before", "--max_steps", STEPS, "--checkpoint_dir", "ckpt", "--save_final_model", 1, "--model_dir", "after"
    )
    model, written = load(after), AutoTokenizer.from_pretrained(after)
    trip.close(f"loss after {STEPS} steps", loss, validation_loss(model, ids))
    trip.expect("ids of the tokenizer", written(held_out)["input_ids"] + [written.eos_token_id] == ids)
    names = {n for n, _ in load(before).named_parameters()}
    trip.expect("names of the parameters", names == {n for n, _ in model.named_parameters()})
    ours = trip.run("generate", "ckpt", "--prompt", PROMPT, "--temperature", 0, "--max_new_tokens", 20, "--bf16", 0)
    theirs = greedy_text(model, written, 20)
    trip.expect("text with temperature 0", ours.stdout.rstrip("\n") == theirs, repr(theirs))
    trip.run("export", "ckpt", "half", "--dtype", "bf16")
    compare_bf16(trip, after / "model.safetensors", trip.work / "half" / "model.safetensors")
    config = json.loads((after / "config.json").read_text())
    trip.expect("the written model trains on", trip.train("after", "--eval_only", 1) == loss, config["model_type"])


def write_ranks(tokenizer_json, path):
    """The tokens of a tokenizer as a file of tiktoken of Llama 3's size, filled up with tokens that no text
    here holds. Returns their ranks."""
    alphabet = {letter: byte for byte, letter in bytes_to_unicode().items()}
    vocabulary = json.loads(tokenizer_json.read_text())["model"]["vocab"]
    tokens = [bytes(alphabet[c] for c in t) for t in sorted(vocabulary, key=vocabulary.get) if t != END]
    tokens += [b"\xff\xff%06d" % i for i in range(LLAMA3_RANKS - len(tokens))]
    path.write_text("".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(tokens)))
    return {token: rank for rank, token in enumerate(tokens)}


def expect_ids_of_ranks(trip, ranks, written):
    """What transformers makes of ranks that tessera has written in another form."""
    split = written.backend_tokenizer.pre_tokenizer
    pattern = json.loads(split.__getstate__())["pretokenizers"][0]["pattern"]["Regex"]
    encoding = tiktoken.Encoding("own", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    for text in (trip.work / "text.txt").read_text(), "thethethe hehehe  \n\n 1234567 don't \u00e9\u6587":
        ids = written(text, add_special_tokens=False)["input_ids"]
        trip.expect("ids of tiktoken", ids == encoding.encode_ordinary(text))


def own_tokenizers(trip):
    """Models trained from scratch: what transformers makes of tessera's own tokenizers."""
    trip.run("tokenizer", "train", "--input", "text.txt", "--vocab_size", 300, "--output", "own.json")
    shape = ["--model_type", "llama_v2", "--hidden_width", 32, "--num_layers", 1, "--num_heads", 2]
    shape += ["--intermediate_size", 64, "--max_context_width", CONTEXT]
    text = (trip.work / "held_out.txt").read_text()[:400] + " \u00e9\u6587\U0001f600"
    (trip.work / "sample.txt").write_text(text)
    ranks = write_ranks(trip.work / "own.json", trip.work / "own.tiktoken")
    vocabulary = {"byte": VOCABULARY, "own.json": VOCABULARY, "own.tiktoken": LLAMA3_RANKS + 256}
    for number, (name, size) in enumerate(vocabulary.items()):
        out = f"own{number}"
        words = ["--dataset", "text.txt", "--tokenizer", name, "--max_steps", 1, "--save_final_model", 1]
        trip.run("train", *shape, *words, "--vocab_size", size, "--model_dir", out)
        written = AutoTokenizer.from_pretrained(trip.work / out)
        ids = [int(i) for i in trip.run("tokenizer", "encode", "--tokenizer", name, "sample.txt").stdout.split()]
        theirs = written(text)["input_ids"]
        trip.expect(f"ids of the tokenizer {name}", theirs[len(theirs) - len(ids) :] == ids)
        begin = [LLAMA3_RANKS] if name == "own.tiktoken" else []  # <|begin_of_text|>
        trip.expect("ids before a text", theirs[: len(theirs) - len(ids)] == begin)
        trip.expect(f"text of the tokenizer {name}", written.decode(ids) == text)
        model = load(trip.work / out)
        trip.expect("end of text", model.generation_config.eos_token_id == written.eos_token_id)
        if name == "own.tiktoken":
            expect_ids_of_ranks(trip, ranks, written)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", type=pathlib.Path, required=True)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--keep", type=pathlib.Path, help="directory that keeps all that was made")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    root = arguments.keep or pathlib.Path(tempfile.mkdtemp())
    text, held_out = make_text(4000, 1), make_text(200, 2)
    tokenizer = make_tokenizer(text)
    failures = []
    for name in [*arguments.families, "own tokenizers"]:
        print(name)
        trip = Trip(arguments.tessera.resolve(), name, root / name.replace(" ", "_"))
        trip.work.mkdir(parents=True)
        (trip.work / "text.txt").write_text(text)
        (trip.work / "held_out.txt").write_text(held_out)
        if name in FAMILIES:
            round_trip(trip, *FAMILIES[name], tokenizer)
        else:
            own_tokenizers(trip)
        failures += [f"{name}: {what}" for what in trip.failures]
    if not arguments.keep:
        shutil.rmtree(root)
    print("all agree" if not failures else "differences: " + "; ".join(failures))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
