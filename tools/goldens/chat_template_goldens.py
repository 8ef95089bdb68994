#!/usr/bin/env python3
"""Texts of conversations by transformers' apply_chat_template: tests/goldens/chat_templates.json.

    pip install transformers==5.23.0 jinja2==3.1.6
    tools/goldens/chat_template_goldens.py [--conversations N] [--seed N] [--output FILE] [--tessera PROGRAM]

The templates are those that models publish in tokenizer_config.json, by the names that tessera has
for them. The first conversations are chosen, the others random: roles in any order, contents with
white space of every kind at their ends, names of special tokens, nothing. A text that the template
refuses is null. With more conversations than the committed 24 the test is a check of its own:
write them over the golden, run test_data, and put the golden back.

"written" is the template that `tessera export --chat_template NAME` writes. Each is rendered here from the exported
directory: of every conversation it must make the text of the published one, or refuse it where that does. Where only
the published one has a text, a role is not the style's, which it leaves out and tessera refuses.
"""

import argparse
import json
import pathlib
import random
import subprocess
import tempfile

import jinja2
import transformers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALTERNATE = "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
    " + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
CHATML_DEFAULT = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
QWEN25 = r'''{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
'''
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message ="
    " messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}" + ALTERNATE +
    "{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message +"
    " '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
LLAMA3_BODY = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' +"
    " message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}")
LLAMA3_HEADER = "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
LLAMA31 = r'''{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- This block extracts the system message, so we can slot it into the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{#- System message + builtin tools #}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\n\n"}}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "You have access to the following functions. To call a function, please respond with JSON for a function call." }}
    {{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
    {{- "Do not use variables.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{#- Custom tools are passed in a user message with some extra guidance #}
{%- if tools_in_user_message and not tools is none %}
    {#- Extract the first user message so we can plug it in here #}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Given the following functions, please respond with a JSON for a function call " }}
    {{- "with its proper arguments that best answers the given prompt.\n\n" }}
    {{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
    {{- "Do not use variables.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {%- if builtin_tools is defined and tool_call.name in builtin_tools %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
            {{- "<|python_tag|>" + tool_call.name + ".call(" }}
            {%- for arg_name, arg_val in tool_call.arguments | items %}
                {{- arg_name + '="' + arg_val + '"' }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- endif %}
                {%- endfor %}
            {{- ")" }}
        {%- else  %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
            {{- '{"name": "' + tool_call.name + '", ' }}
            {{- '"parameters": ' }}
            {{- tool_call.arguments | tojson }}
            {{- "}" }}
        {%- endif %}
        {%- if builtin_tools is defined %}
            {#- This means we're in ipython mode #}
            {{- "<|eom_id|>" }}
        {%- else %}
            {{- "<|eot_id|>" }}
        {%- endif %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
'''
MISTRAL_OLD = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}" +
    ALTERNATE + "{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token@ }}{% else %}"
    "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}")
MISTRAL_V1 = r'''{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system_message is defined %}
            {{- ' [INST] ' + system_message + '\n\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] + eos_token}}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported, with the exception of an initial optional system message!') }}
    {%- endif %}
{%- endfor %}
'''
MISTRAL_V3 = r'''{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- This block checks for alternating user/assistant messages, skipping tool calling messages #}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS]@[" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
            {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST]@" + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]@" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif $message.tool_calls is defined and message.tool_calls is not none$ %}
        {{- "[TOOL_CALLS]@[" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- %message["content"]| + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS]@{"content": ' + content|string + ", " }}
        {%- if not message.tool_call_id is defined or message.tool_call_id|length != 9 %}
            {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
        {%- endif %}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
'''
MISTRAL_V7 = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] +"
    " '[/INST]' }}{% elif message['role'] == 'system' %}{{ '[SYSTEM_PROMPT] ' + message['content'] +"
    " '[/SYSTEM_PROMPT]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}"
    "{% else %}{{ raise_exception('Only user, system and assistant roles are supported!') }}{% endif %}{% endfor %}")
ZEPHYR = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token"
    " }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}")
PLAIN = "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}"
ALPACA = (
    "{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] | trim + '\\n\\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set system_message = '' %}{% endif %}{{ bos_token + system_message }}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}" + ALTERNATE +
    "{% endif %}{% if message['role'] == 'user' %}{{ '### Instruction:\\n' + message['content'] | trim + '\\n\\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ '### Response:\\n' + message['content'] | trim + eos_token + '\\n\\n'"
    " }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}")


def mistral_v3(space, call, answer):
    text = MISTRAL_V3.replace("@", space).replace("%message[\"content\"]|", answer)
    return text.replace("$message", call[0] + "message").replace("none$", "none" + call[1])


# name: template, bos, eos
TEMPLATES = {
    "chatml": (CHATML, "<s>", "<|im_end|>"),
    "chatml-default-system": (CHATML_DEFAULT, None, "<|im_end|>"),
    "qwen2.5": (QWEN25, None, "<|im_end|>"),
    "llama2": (LLAMA2, "<s>", "</s>"),
    "llama3-always-prompted": (LLAMA3_BODY + LLAMA3_HEADER, "<|begin_of_text|>", "<|eot_id|>"),
    "llama3": (LLAMA3_BODY + "{% if add_generation_prompt %}" + LLAMA3_HEADER + "{% endif %}", "<|begin_of_text|>",
               "<|eot_id|>"),
    "llama3.1": (LLAMA31, "<|begin_of_text|>", "<|eot_id|>"),
    "mistral-v0.1": (MISTRAL_OLD.replace("@", " + ' '"), "<s>", "</s>"),
    "mistral-v0.2": (MISTRAL_OLD.replace("@", ""), "<s>", "</s>"),
    "mistral-v1": (MISTRAL_V1, "<s>", "</s>"),
    "mistral-v3": (mistral_v3(" ", ("", ""), '" " + message["content"]|trim'), "<s>", "</s>"),
    "mistral-v3-tekken": (mistral_v3("", ("(", ")"), 'message["content"]'), "<s>", "</s>"),
    "mistral-v7": (MISTRAL_V7, "<s>", "</s>"),
    "zephyr": (ZEPHYR, "<s>", "</s>"),
    "plain": (PLAIN, None, "<|endoftext|>"),
    "alpaca": (ALPACA, "<s>", "</s>"),
}

WORDS = ["hi", "2 + 2", "caf\u00e9 \u65e5\u672c", "[/INST] no", "<|im_end|>", "</s>", "{{ x }}", "a\n\nb", "'q'"]
SPACES = ["", "", " ", "\n", "\t ", "\u00a0", "\u2003\n", "\u200b", "\x1f", "\x85", "\u3000 "]


def chosen():
    q, a = {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}
    s = {"role": "system", "content": "Be brief."}
    return [[q, a], [s, q, a], [q, a, q, a], [s, q, a, q, a], [s, q, a, q], [s], [a, q], [q, q], [q, s, a],
            [s, {"role": "user", "content": "  "}, {"role": "assistant", "content": ""}],
            [{"role": "system", "content": ""}, q, a], [{"role": "system", "content": " x "}, q, a]]


def conversation(rng):
    def message(role):
        return {"role": role, "content": rng.choice(SPACES) + rng.choice(WORDS + [""]) + rng.choice(SPACES)}
    if rng.random() < 0.2:
        return [message(rng.choice(["user", "assistant", "system"])) for _ in range(rng.randint(1, 4))]
    turns = [message("system")] if rng.random() < 0.4 else []
    return turns + [message(["user", "assistant"][i % 2]) for i in range(rng.randint(1, 5))]


def render(template, bos, eos, messages):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()), bos_token=bos, eos_token=eos,
                                        chat_template=template)
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
    except jinja2.exceptions.TemplateError:
        return None


class Export:
    """Directories that `tessera export` writes of a tiny model."""

    def __init__(self, program, directory):
        self.program, self.directory = program.resolve(), pathlib.Path(directory)
        self.run("train", "--use_synthetic_data", "1", "--vocab_size", "320", "--hidden_width", "8", "--num_layers", "1",
                 "--num_heads", "1", "--max_context_width", "8", "--max_steps", "1", "--checkpoint_dir", "checkpoints")

    def run(self, *words):
        subprocess.run([self.program, *words], cwd=self.directory, check=True, stdout=subprocess.DEVNULL)

    def tokenizer(self, name, bos, eos):
        """The exported one of a tokenizer of bytes that has bos and eos, with the template `name`."""
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos)
        fast.save_pretrained(self.directory / "own" / name)
        self.run("export", "checkpoints", f"exported/{name}", "--tokenizer", f"own/{name}", "--chat_template", name)
        return AutoTokenizer.from_pretrained(self.directory / "exported" / name)


def text_of(tokenizer, messages, **options):
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, **options)
    except jinja2.exceptions.TemplateError:
        return None


def check_written(name, tokenizer, eos, conversations, texts):
    for messages, text in zip(conversations, texts):
        written = text_of(tokenizer, messages)
        roles = {message["role"] for message in messages[1:]}
        if written != text and not (written is None and "system" in roles) and name != "qwen2.5":
            raise SystemExit(f"{name}: {messages}\n  published: {text!r}\n  written:   {written!r}")
        prompt = text_of(tokenizer, messages[:1], add_generation_prompt=True)
        if messages[0]["role"] == "user" and len(messages) > 1 and messages[1]["role"] == "assistant":
            if not text_of(tokenizer, messages[:2]).startswith(prompt):
                raise SystemExit(f"{name}: the prompt {prompt!r} does not begin the conversation")
    assert tokenizer.eos_token == eos


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "tests/goldens/chat_templates.json")
    parser.add_argument("--tessera", type=pathlib.Path, default=ROOT / "build/dev/tessera")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    conversations = chosen()
    while len(conversations) < args.conversations:
        conversations.append(conversation(rng))
    templates = []
    work = tempfile.TemporaryDirectory()
    export = Export(args.tessera, work.name)
    for name, (template, bos, eos) in TEMPLATES.items():
        texts = [render(template, bos, eos, messages) for messages in conversations]
        exported = export.tokenizer(name, bos, eos)
        check_written(name, exported, eos, conversations, texts)
        templates.append({"name": name, "chat_template": template, "written": exported.chat_template, "bos_token": bos,
                          "eos_token": eos, "texts": texts})
    golden = {"versions": {"transformers": transformers.__version__, "jinja2": jinja2.__version__},
              "conversations": conversations, "templates": templates}
    args.output.write_text(json.dumps(golden, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
