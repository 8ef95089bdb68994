#!/usr/bin/env python3
"""Makes tests/tokenizer/goldens/sentencepiece from `sentencepiece` and `tokenizers` (development only).

    python3 -m venv venv && venv/bin/pip install sentencepiece==0.2.3 tokenizers==0.23.3 tiktoken protobuf
    venv/bin/python tools/goldens/sentencepiece_goldens.py

Trains small models on tests/tokenizer/goldens/corpus.txt and writes

    bpe.model        in the manner of Llama-2: BPE, byte fallback, text as it is
    bpe_nfkc.model   BPE without byte fallback, NFKC, spaces collapsed, user-defined pieces
    unigram.model    unigram, NFKC, spaces collapsed: SentencePiece's defaults
    unigram_bytes.model   unigram, byte fallback, text as it is, user-defined pieces
    llama.json       bpe.model as a tokenizer.json of Llama-2's form
    prompts.json     texts with added tokens in them and their ids by variants of llama.json
    ids.json         samples (tokenizer_goldens.py and more) and their ids by each of them and by variants

The charsmap of nmt_nfkc has 240 kB; the models have its rules for the characters of the samples and a few blocks.
Variants, which the test makes again: bpe_unused has every seventh piece of bpe.model of more than one character
unused; llama_* are llama.json with other components. Ids are None where `tokenizers`, which takes only Unicode, has
none; long lists are their number and sum((i + 1) * ids[i]) modulo 2^64. `decoded` is there where it is not the text.
"""
import json
import tempfile
import unicodedata
from pathlib import Path

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import tokenizer_goldens

GOLDENS = tokenizer_goldens.GOLDENS / "sentencepiece"
CORPUS = tokenizer_goldens.GOLDENS / "corpus.txt"
SPACE = "\u2581"


def samples():
    yield from tokenizer_goldens.samples()
    texts = {
        "one space": " ",
        "spaces around": "  the engine  keeps   one graph   ",
        "line ends": "\n\n\tthe\r\n the\n",
        "its own space symbol": f"a{SPACE}b {SPACE} {SPACE}{SPACE}the{SPACE}",
        "names of pieces": "<s>the</s> <unk><0x41> <0x0a><pad>",
        "user-defined pieces": f"a<sep>b<sep><sep> <se <sep >a\u2581bc a bcd {SPACE}{SPACE}{SPACE}x  y<mask>the<mask>",
        "full width": "\uff21\uff22\uff23 \uff01\u3000\uff76\uff9e\ufb01 \ufb03x \u2460\u00bd \u33a1 \u2126 \u212b \u1e9b\u0323",
        "composition": "e\u0301e\u0301\u0301 A\u030a n\u0303\u0303 \u1112\u1161\u11ab\u1100\u1161 o\u0308\u0304 x\u0301",
        "unknown in a row": "\u0e01\u0e02the\u0e03 \u0e04 \u0e05\u0e06 \U00010400\U00010401",
        "zero width": "a\u200bb\u200d\u2060c\ufeff d\u00ad",
    }
    for name, text in texts.items():
        yield name, text.encode(), 1
    yield "invalid and spaces", b"\xff \xfe the\xe2\x96 \x96\x81a \xe2\x96\x81\xe2\x96", 1
    yield "many words", b"the reader's thread fills what the trainer's thread takes ", 3000
    yield "unknown many times", "\u0e01".encode(), 20_000


def rules():
    """NFKC as nmt_nfkc has it, for the characters of the samples and some blocks."""
    nfkc = spm.SentencePieceNormalizer(rule_name="nmt_nfkc", add_dummy_prefix=False, escape_whitespaces=False,
                                      remove_extra_whitespaces=False)
    characters = set("".join(data.decode(errors="ignore") for _, data, _ in samples()))
    for first, last in ((0x20, 0x17F), (0x2000, 0x206F), (0xFB00, 0xFB06), (0xFF00, 0xFF9F)):
        characters |= {chr(c) for c in range(first, last)}
    sources = {c for c in characters if c != "\0"}
    for letter in "AEINOUYaeinouy":
        for mark in "\u0300\u0301\u0302\u0303\u0308\u030a":
            sources.add(letter + mark)
    for lead in range(0x1100, 0x1113):
        sources |= {chr(lead) + "\u1161", chr(lead) + "\u1161\u11ab"}
    for source in sorted(sources):
        target = nfkc.normalize(source)
        if target != source:
            yield " ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target)


def train(name, folder, **options):
    tsv = Path(folder) / "rules.tsv"
    tsv.write_text("".join(line + "\n" for line in rules()))
    if options.pop("nfkc"):
        options["normalization_rule_tsv"] = str(tsv)
    else:
        options |= {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    spm.SentencePieceTrainer.train(input=str(CORPUS), model_prefix=str(Path(folder) / name), minloglevel=2,
                                   num_threads=1, character_coverage=0.98, **options)
    proto = pb.ModelProto()
    proto.ParseFromString((Path(folder) / f"{name}.model").read_bytes())
    for field in ("input", "model_prefix"):
        proto.trainer_spec.ClearField(field)
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return proto


def llama(proto):
    """As transformers converts Llama-2's tokenizer.model."""
    vocabulary = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    merges = []
    for piece in proto.pieces:
        parts = [(piece.piece[:i], piece.piece[i:]) for i in range(1, len(piece.piece))]
        parts = [part for part in parts if part[0] in vocabulary and part[1] in vocabulary]
        parts.sort(key=lambda part: (vocabulary[part[0]], vocabulary[part[1]]))
        merges += [(part, piece.score) for part in parts]
    merges.sort(key=lambda merge: -merge[1])
    tokenizer = Tokenizer(models.BPE(vocabulary, [part for part, _ in merges], unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    names = ("<unk>", "<s>", "</s>")
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", vocabulary["<s>"])])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def variants(file):
    """The changes that the test makes to llama.json."""
    def changed(**parts):
        return Tokenizer.from_str(json.dumps({**json.loads(file), **parts}))

    def metaspace(scheme, split):
        space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}
        return changed(normalizer=None, pre_tokenizer=space, decoder=space)

    model = json.loads(file)["model"]
    return {
        "llama": changed(),
        "llama_first": metaspace("first", False),
        "llama_words": metaspace("always", True),
        "llama_never": metaspace("never", False),
        "llama_fused": changed(model=model | {"byte_fallback": False}),
        "llama_unknown": changed(model=model | {"byte_fallback": False, "fuse_unk": False}),
    }


PROMPTS = ["", " ", "</s>", "the</s>the", "<s> the </s> the", " <s>the", "the <x>reader<x> <x>", "the<mask> reader <mask>",
           "<mask>", "a rank", "rank", "the ranks, rank.", "  <x>  "]


def prompts(file):
    """By the variants with other added tokens as well: normalized or not, with flags."""
    added = [AddedToken("<x>", normalized=True), AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False),
             AddedToken("rank", single_word=True, normalized=True)]
    for name, tokenizer in variants(file).items():
        tokenizer.add_tokens(added)
        for text in PROMPTS:
            yield {"variant": name, "text": text, "prompt": tokenizer.encode(text).ids}


def listed(ids):
    if ids is None or len(ids) <= 24:
        return {"ids": ids}
    return {"count": len(ids), "sum": str(sum((i + 1) * id for i, id in enumerate(ids)) % (1 << 64))}


def by_sentencepiece(processor, data):
    ids = processor.encode(data)
    row = listed(ids)
    decoded = processor.decode(ids).encode()
    if decoded != data and len(decoded) <= 200:
        row["decoded"] = decoded.hex()
    return row


def by_tokenizers(tokenizer, data):
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return listed(None)
    tokenizer.encode_special_tokens = True
    return listed(tokenizer.encode(text, add_special_tokens=False).ids)


def main():
    GOLDENS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        protos = {
            "bpe": train("bpe", folder, nfkc=False, model_type="bpe", vocab_size=640, byte_fallback=True,
                         split_digits=True, allow_whitespace_only_pieces=True),
            "bpe_nfkc": train("bpe_nfkc", folder, nfkc=True, model_type="bpe", vocab_size=400,
                              user_defined_symbols=["<sep>", "<mask>", SPACE * 2, f"a{SPACE}bc"]),
            "unigram": train("unigram", folder, nfkc=True, model_type="unigram", vocab_size=400,
                             hard_vocab_limit=False),
            "unigram_bytes": train("unigram_bytes", folder, nfkc=False, model_type="unigram", vocab_size=640,
                                   hard_vocab_limit=False, byte_fallback=True,
                                   user_defined_symbols=["<sep>", "<mask>", SPACE * 3]),
        }
    for name, proto in protos.items():
        (GOLDENS / f"{name}.model").write_bytes(proto.SerializeToString())
    file = llama(protos["bpe"]).to_str()
    (GOLDENS / "llama.json").write_text(file + "\n")
    protos["bpe_unused"] = pb.ModelProto()
    protos["bpe_unused"].CopyFrom(protos["bpe"])
    for id, piece in enumerate(protos["bpe_unused"].pieces):
        if id % 7 == 0 and piece.type == piece.NORMAL and len(piece.piece) > 1:
            piece.type = piece.UNUSED
    processors_ = {name: spm.SentencePieceProcessor(model_proto=proto.SerializeToString())
                   for name, proto in protos.items()}
    tokenizers_ = variants(file)
    rows = []
    for name, data, repeat in samples():
        row = {"name": name, "hex": data.hex(), "repeat": repeat}
        row |= {key: by_sentencepiece(processor, data * repeat) for key, processor in processors_.items()}
        row |= {key: by_tokenizers(tokenizer, data * repeat) for key, tokenizer in tokenizers_.items()}
        rows.append(row)
    tokenizer_goldens.write_rows(GOLDENS / "ids.json", rows)
    tokenizer_goldens.write_rows(GOLDENS / "prompts.json", prompts(file))


if __name__ == "__main__":
    main()
