#!/usr/bin/env python3
"""Ids and masks of conversations and prompts by transformers: tests/goldens/records.json.

    pip install transformers==5.23.0 tokenizers==0.23.* jinja2==3.1.6
    tools/goldens/record_encoder_goldens.py [--conversations N] [--seed N] [--output FILE]

Tokenizers are those of tests/tokenizer/goldens with the special tokens that a template writes. `ids` and `mask` of a
conversation are apply_chat_template's with return_assistant_tokens_mask: templates have {% generation %} around what is
learned, and write the same text as the published ones (checked here). `reaching` are the positions of tokens that lie
partly in an answer, which transformers counts as learned and tessera does not. Prompts with completions are done as TRL's
SFTTrainer does: eos behind the completion, all in one, and the tokens behind as many as the prompt has are learned.
"""

import argparse
import json
import pathlib
import random

import tokenizers
import transformers
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from chat_template_goldens import TEMPLATES

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZERS = ROOT / "tests/tokenizer/goldens"
G, E = "{% generation %}", "{% endgeneration %}"


def turns(answer, other, begin=""):
    return (begin + "{% for message in messages %}{% if message.role == 'assistant' %}" + answer + "{% else %}" + other +
            "{% endif %}{% endfor %}")


TRIMMED = "message.content | trim"
MASKED = {
    "chatml": turns("{{'<|im_start|>assistant\\n'}}" + G + "{{message.content + '<|im_end|>'}}" + E + "{{'\\n'}}",
                    "{{'<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n'}}"),
    "llama3": turns("{{'<|start_header_id|>assistant<|end_header_id|>\\n\\n'}}" + G + "{{" + TRIMMED +
                    " + '<|eot_id|>'}}" + E,
                    "{{'<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n'}}{{" + TRIMMED +
                    "}}{{'<|eot_id|>'}}", "{{ bos_token }}"),
    "zephyr": turns("{{'<|assistant|>\\n'}}" + G + "{{message.content + eos_token}}" + E + "{{'\\n'}}",
                    "{{'<|' + message.role + '|>\\n' + message.content + eos_token + '\\n'}}"),
    "llama2": turns(G + "{{' '}}{{" + TRIMMED + "}}{{' ' + eos_token}}" + E,
                    "{{bos_token + '[INST] '}}{{" + TRIMMED + "}}{{' [/INST]'}}"),
    "mistral-v1": turns(G + "{{' ' + message.content + eos_token}}" + E,
                        "{{' [INST] ' + message.content + ' [/INST]'}}", "{{ bos_token }}"),
    "mistral-v0.1": turns(G + "{{message.content + eos_token}}" + E + "{{' '}}",
                          "{{'[INST] ' + message.content + ' [/INST]'}}", "{{ bos_token }}"),
    "plain": turns(G + "{{message.content + eos_token}}" + E, "{{message.content + eos_token}}"),
    "alpaca": turns("{{'### Response:\\n'}}" + G + "{{" + TRIMMED + "}}{{eos_token}}" + E + "{{'\\n\\n'}}",
                    "{{'### Instruction:\\n'}}{{" + TRIMMED + "}}{{'\\n\\n'}}", "{{ bos_token }}"),
}

IM = [{"content": "<|im_start|>"}, {"content": "<|im_end|>"}]
HEADERS = [{"content": c} for c in ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")]
S = [{"content": "<s>"}, {"content": "</s>"}]
# Tokenizer, added tokens, template, bos, eos.
CASES = [
    ("tokenizer.json", IM, "chatml", "", "<|im_end|>"),
    ("neox.json", IM, "chatml", "", "<|im_end|>"),  # NFC, runs of spaces
    ("sentencepiece/llama.json", IM, "chatml", "", "<|im_end|>"),
    ("tokenizer.json", [{"content": "<|im_start|>", "lstrip": True}, {"content": "<|im_end|>", "rstrip": True}], "chatml",
     "", "<|im_end|>"),
    ("tokenizer.json", [], "chatml", "", "<|endoftext|>"),  # whose names are no tokens
    ("llama3.json", HEADERS, "llama3", "<|begin_of_text|>", "<|eot_id|>"),
    ("sentencepiece/llama.json", [], "llama2", "<s>", "</s>"),
    ("sentencepiece/llama.json", [], "mistral-v1", "<s>", "</s>"),
    ("sentencepiece/metaspace", [], "llama2", "<s>", "</s>"),
    ("tokenizer.json", S, "mistral-v0.1", "<s>", "</s>"),
    ("sentencepiece/llama.json", [], "zephyr", "<s>", "</s>"),
    ("llama3.json", S, "zephyr", "<s>", "</s>"),  # whose line ends are one token with those of an answer
    ("neox.json", [], "plain", "", "<|endoftext|>"),
    ("neox.json", S, "alpaca", "<s>", "</s>"),
    ("sentencepiece/llama.json", [], "alpaca", "<s>", "</s>"),
]
WORDS = ["the", "engine", "reads", "cafe\u0301", "caf\u00e9", "\u65e5\u672c", "  two", "2 + 2 = 4", "a\n\nb", "\nline",
         "it's", "\u0301x", "\U0001f642", "tab\t", "{}", "\u00a0", "merge", "tokens.", "\n\nthe", "\nthe"]


def load(base):
    if base == "sentencepiece/metaspace":  # the newer form of the same
        file = json.loads((TOKENIZERS / "sentencepiece/llama.json").read_text())
        file["normalizer"] = None
        file["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
        return Tokenizer.from_str(json.dumps(file))
    return Tokenizer.from_file(str(TOKENIZERS / base))


def wrapped(base, added, template, bos, eos):
    raw = load(base)
    raw.add_special_tokens([AddedToken(a["content"], lstrip=a.get("lstrip", False), rstrip=a.get("rstrip", False),
                                       normalized=False, special=True) for a in added])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=bos or None, eos_token=eos,
                                        chat_template=template)
    tokenizer.added_ids = [raw.token_to_id(a["content"]) for a in added]
    return tokenizer


def conversation(rng):
    def content():
        return rng.choice([" ", "", "", "\n"]).join(rng.choice(WORDS) for _ in range(rng.randint(0, 5)))
    return [{"role": ["user", "assistant"][i % 2], "content": content()} for i in range(rng.randint(2, 5))]


def spans_of(tokenizer, template, messages):
    """Where the answers stand, in characters, by transformers."""
    from transformers.utils.chat_template_utils import render_jinja_template
    _, spans = render_jinja_template([messages], chat_template=template, return_assistant_tokens_mask=True,
                                     **tokenizer.special_tokens_map)
    return spans[0]


def chat_case(tokenizer, name, messages):
    masked, published = MASKED[name], TEMPLATES[name][0]
    text = tokenizer.apply_chat_template(messages, chat_template=masked, tokenize=False)
    assert text == tokenizer.apply_chat_template(messages, chat_template=published, tokenize=False), name
    out = tokenizer.apply_chat_template(messages, chat_template=masked, tokenize=True, return_dict=True,
                                        return_assistant_tokens_mask=True)
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    assert offsets["input_ids"] == out["input_ids"]
    reaching = []
    for begin, end in spans_of(tokenizer, masked, messages):
        if out.char_to_token(begin) is None:
            return None  # where normalization loses the place, transformers leaves out all that follows
        for i, (b, e) in enumerate(offsets["offset_mapping"]):
            # What a special token swallows is not a part of its text.
            special = out["input_ids"][i] in tokenizer.added_ids
            if not special and b < end and e > begin and (b < begin or e > end):
                reaching.append(i)
    return {"messages": messages, "ids": out["input_ids"], "mask": out["assistant_masks"], "reaching": reaching}


def prompt_case(tokenizer, prompt, completion):
    ids = tokenizer(prompt + completion + tokenizer.eos_token)["input_ids"]
    before = len(tokenizer(prompt)["input_ids"])
    return {"prompt": prompt, "completion": completion, "ids": ids, "mask": [int(i >= before) for i in range(len(ids))]}


PROMPTS = [("2 + 2 =", " 4"), ("the engine", " reads"), ("reads: ", "tokens"), ("a\n", "b"), ("", "the"), ("cafe\u0301", " x"),
           ("the engine reads", "")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests/goldens/records.json")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    cases = []
    for base, added, name, bos, eos in CASES:
        tokenizer = wrapped(base, added, MASKED[name], bos, eos)
        chats = []
        while len(chats) < args.conversations:
            chat = chat_case(tokenizer, name, conversation(rng))
            chats += [chat] if chat else []
        prompts = [prompt_case(tokenizer, p, c) for p, c in PROMPTS]
        tokens = [{"id": tokenizer.convert_tokens_to_ids(a["content"]), "lstrip": False, "rstrip": False,
                   "normalized": False, "single_word": False, "special": True, **a} for a in added]
        tokens = [t for t in tokens if load(base).token_to_id(t["content"]) is None]
        cases.append({"tokenizer": base, "added": tokens, "template": name, "bos": bos, "eos": eos, "chats": chats,
                      "prompts": prompts})
    golden = {"versions": {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}, "cases": cases}
    lines = ",\n ".join(json.dumps(case) for case in cases)
    head = json.dumps(golden["versions"])
    args.output.write_text('{"versions": ' + head + ',\n "cases": [\n ' + lines + "]}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
