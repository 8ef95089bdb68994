#!/usr/bin/env python3
"""Writes tests/goldens/torch_files/: small files of torch.save and torch.distributed.checkpoint, what
is in them, and pickles that must be refused.

    /tmp/venv-torch/bin/python tools/goldens/torch_file_goldens.py write

`check DCP_TOOL` loads the checkpoint that tests/torch_files/dcp_tool writes with PyTorch, on one rank and
as DTensors on two.

Python 3.11, torch 2.15.0, safetensors 0.8.0.
"""

import collections
import io
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import zipfile

import numpy
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed._shard.sharded_tensor.metadata import MEM_FORMAT_ENCODING
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict

GOLDENS = pathlib.Path(__file__).parents[2] / "tests" / "goldens"
OUT = GOLDENS / "torch_files"
MODEL = "qwen2_window_tiny"
LLAMA = "ministral_tiny"


def numbers(tensor):
    """All elements, row-major, as numbers that JSON holds exactly."""
    if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64) or tensor.dtype.itemsize == 1:
        return tensor.reshape(-1).view(torch.uint8).tolist() if tensor.dtype != torch.bool else tensor.reshape(-1).int().tolist()
    return tensor.detach().reshape(-1).to(torch.float64).tolist()


def described(tensors):
    return {
        name: {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape),
               "stride": list(t.stride()), "values": numbers(t)}
        for name, t in tensors.items()
    }


def archives():
    """Tensors of every kind in nested dicts, beside values that are none."""
    base = torch.arange(24.0).reshape(2, 3, 4)
    tensors = collections.OrderedDict()
    tensors["f32"] = base
    tensors["transposed"] = torch.arange(6.0).reshape(2, 3).t()
    tensors["permuted"] = base.permute(2, 0, 1)
    tensors["twin"] = base
    tensors["view"] = base[1, :, 1:3]
    tensors["expanded"] = torch.tensor([1.5, -2.5]).expand(3, 2)
    tensors["parameter"] = torch.nn.Parameter(torch.tensor([0.5, 1.0, -2.0], dtype=torch.bfloat16))
    tensors["f16"] = torch.tensor([1.0, 65504.0, -0.125], dtype=torch.float16)
    tensors["f64"] = torch.tensor([[0.1]], dtype=torch.float64)
    tensors["scalar"] = torch.tensor(-7)
    tensors["i32"] = torch.tensor([1, -2], dtype=torch.int32)
    tensors["bool"] = torch.tensor([True, False, True])
    tensors["empty"] = torch.zeros(0, 4)
    tensors["u8"] = torch.tensor([0, 255], dtype=torch.uint8)
    tensors["u16"] = torch.tensor([1, 65535], dtype=torch.uint16)
    tensors["f8"] = torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn)
    nested = {"model": {"a.b": torch.ones(2), 3: torch.zeros(1)}, "model.c": torch.full((1,), 4.0)}
    flat = {"model.a.b": torch.ones(2), "model.3": torch.zeros(1), "model.c": torch.full((1,), 4.0)}
    rest = {"step": 5, "wide": 2**70, "deep": {"y": [1, 2.5, (1, 2), None, True, "z", -3, 2**62, -(2**63)]},
            "set": {1}, "raw": b"\x00\xff", "size": torch.Size([1, 2]), "dtype": torch.bfloat16,
            "device": torch.device("cpu"), "default": collections.defaultdict(dict, {"k": 1})}
    saved = collections.OrderedDict({**tensors, **nested, **rest})
    saved._metadata = {"version": 1}
    torch.save(saved, OUT / "plain.pt")
    torch.save(saved, OUT / "protocol5.pt", pickle_protocol=5)
    torch.save(base[1], OUT / "tensor.pt")
    torch.save({"weight": torch.ones(2)}, OUT / "before_1_6.bin", _use_new_zipfile_serialization=False)
    (OUT / "plain.json").write_text(json.dumps(described({**tensors, **flat}), indent=1) + "\n")


def model():
    """The tiny model in two files of torch.save and in one."""
    weights = safetensors.torch.load_file(GOLDENS / MODEL / "model.safetensors")
    folder = OUT / MODEL
    folder.mkdir()
    names = sorted(weights)
    shards = {"pytorch_model-00001-of-00002.bin": names[: len(names) // 2],
              "pytorch_model-00002-of-00002.bin": names[len(names) // 2 :]}
    for file, own in shards.items():
        torch.save(collections.OrderedDict((n, weights[n]) for n in own), folder / file)
    index = {"metadata": {"total_size": sum(w.numel() * w.element_size() for w in weights.values())},
             "weight_map": {n: f for f, own in shards.items() for n in own}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2) + "\n")


def halves_to_pairs(weight, head_dim):
    """Rows of queries or keys as Meta's files have them; the inverse of what transformers' conversion does."""
    def to_halves(w):  # convert_llama_weights_to_hf.py: permute()
        return w.view(-1, head_dim // 2, 2, w.shape[1]).transpose(1, 2).reshape(w.shape)

    pairs = weight.view(-1, 2, head_dim // 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
    assert torch.equal(to_halves(pairs), weight)
    return pairs.contiguous()


def consolidated():
    """A tiny model as Meta publishes Llamas: in two parts, the embedding by columns, and some by rows.

    Its last token is left out, so that the others are an even number.
    """
    weights = safetensors.torch.load_file(GOLDENS / LLAMA / "model.safetensors")
    config = json.loads((GOLDENS / LLAMA / "config.json").read_text())
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    layer = {"attention.wq": ("self_attn.q_proj", 0), "attention.wk": ("self_attn.k_proj", 0),
             "attention.wv": ("self_attn.v_proj", 0), "attention.wo": ("self_attn.o_proj", 1),
             "feed_forward.w1": ("mlp.gate_proj", 0), "feed_forward.w2": ("mlp.down_proj", 1),
             "feed_forward.w3": ("mlp.up_proj", 0), "attention_norm": ("input_layernorm", None),
             "ffn_norm": ("post_attention_layernorm", None)}
    own = {"tok_embeddings": ("model.embed_tokens", 1), "norm": ("model.norm", None),
           "output": ("lm_head", 0)}
    own |= {f"layers.{n}.{a}": (f"model.layers.{n}.{b}", dim)
            for n in range(config["num_hidden_layers"]) for a, (b, dim) in layer.items()}
    for folder, embedding_dim in (("consolidated_columns", 1), ("consolidated_rows", 0)):
        (OUT / folder).mkdir()
        for part in range(2):
            saved = {"rope.freqs": torch.ones(head_dim // 2)}
            for name, (ours, dim) in own.items():
                if embedding_dim == 0 and name not in ("tok_embeddings", "norm", "layers.0.attention.wq"):
                    continue
                weight = weights[ours + ".weight"]
                if name in ("tok_embeddings", "output"):
                    weight = weight[:-1]
                if name.endswith((".wq", ".wk")):
                    weight = halves_to_pairs(weight, head_dim)
                if name == "tok_embeddings":
                    dim = embedding_dim
                if dim is not None:
                    weight = weight.chunk(2, dim)[part].clone(memory_format=torch.contiguous_format)
                saved[name + ".weight"] = weight
            torch.save(saved, OUT / folder / f"consolidated.{part:02}.pth")
        params = {"dim": config["hidden_size"], "n_layers": config["num_hidden_layers"],
                  "n_heads": config["num_attention_heads"], "n_kv_heads": config["num_key_value_heads"],
                  "vocab_size": config["vocab_size"] - 1, "multiple_of": config["intermediate_size"],
                  "norm_eps": 1e-05, "ffn_dim_multiplier": 0.5}
        if embedding_dim == 0:
            params |= {"rope_theta": 500000.0, "use_scaled_rope": True}
        (OUT / folder / "params.json").write_text(json.dumps(params) + "\n")


class Call:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def zip_with(pickled):
    """What torch.save would write around a pickle."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in (("data.pkl", pickled), ("byteorder", "little"), ("version", "3\n")):
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), text)  # without the time
    return content.getvalue()


def hostile():
    """What must be refused, by the words that the message must have."""
    folder = OUT / "hostile"
    folder.mkdir()
    refused = {}
    calls = {
        "os_system": (Call(os.system, "touch pwned"), "'posix.system'"),
        "eval": (Call(eval, "open('pwned', 'w')"), ".eval'"),
        "exec": (Call(exec, "open('pwned', 'w')"), ".exec'"),
        "getattr": (Call(getattr, 1, "real"), ".getattr'"),
        "import": (Call(__import__, "os"), ".__import__'"),
        "numpy_scalar": (numpy.float64(1.5), "scalar'"),
        "numpy_array": (numpy.ones(2), "_reconstruct'"),
        "path": (pathlib.PurePosixPath("x"), "'pathlib.PurePosixPath'"),
    }
    for name, (value, words) in calls.items():
        for protocol in (2, 4):
            file = f"{name}_{protocol}.pt"
            (folder / file).write_bytes(zip_with(pickle.dumps({"weight": value}, protocol)))
            refused[file] = words
    torch.save(torch.nn.Linear(1, 1), folder / "module.pt")
    refused["module.pt"] = "'torch.nn.modules.linear.Linear'"
    # Operations that run code or reach outside in Python's machine.
    raw = {
        "inst": (b"\x80\x02(X\x01\x00\x00\x00xiposix\nsystem\n.", "operation 0x69"),
        "obj": (b"\x80\x02(cposix\nsystem\nX\x01\x00\x00\x00xo.", "'posix.system'"),
        "ext1": (b"\x80\x02\x82\x01.", "operation 0x82"),
        "persid": (b"\x80\x02Pfile\n.", "operation 0x50"),
        "text_int": (b"\x80\x02I1\n.", "operation 0x49"),
        "next_buffer": (b"\x80\x05\x97.", "operation 0x97"),
        "protocol_1": (b"}q\x00.", "no pickle of protocol 2"),
    }
    for name, (pickled, words) in raw.items():
        (folder / f"{name}.pt").write_bytes(zip_with(pickled))
        refused[f"{name}.pt"] = words
    (folder / "refused.json").write_text(json.dumps(refused, indent=1) + "\n")


def trained(mesh=None):
    """A model of odd sizes with its AdamW after two steps; sharded where there is a mesh."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 7, bias=False))
    if mesh is not None:
        torch.distributed.fsdp.fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-7, weight_decay=0.1)
    for step in range(2):
        optimizer.zero_grad()
        model(torch.linspace(-1, 1, 20).reshape(4, 5) + step).square().mean().backward()
        optimizer.step()
    return model, optimizer


def state_of(model, optimizer):
    own, moments = get_state_dict(model, optimizer)
    return {"model": own, "optim": moments, "step": 2, "note": {"text": "x", "list": [1, 2.5]}}


def one_rank():
    """What one process saves, flattened as DCP does it."""
    state = state_of(*trained())
    dcp.save(state, checkpoint_id="dcp_one")
    flat, _ = flatten_state_dict(state)
    tensors = {n: t for n, t in flat.items() if isinstance(t, torch.Tensor)}
    items = {n: v for n, v in flat.items() if not isinstance(v, torch.Tensor)}
    (OUT / "dcp.json").write_text(json.dumps({"tensors": described(tensors), "items": items}, indent=1) + "\n")


def start_rank(rank, port, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")


def rank_of_four(rank, port):
    start_rank(rank, port, 4)
    mesh = torch.distributed.init_device_mesh("cpu", (4,))
    dcp.save(state_of(*trained(mesh)), checkpoint_id="dcp_four")
    torch.distributed.destroy_process_group()


def old_metadata():
    """The first checkpoint's metadata as PyTorch before 2.3 wrote it: other modules, fewer fields."""
    folder = OUT / "dcp_old"
    folder.mkdir()
    metadata = pickle.loads((OUT / "dcp_one" / ".metadata").read_bytes())
    old = torch.distributed._shard.sharded_tensor.metadata.TensorProperties
    old.__getstate__ = lambda self: (self.dtype, self.layout, self.requires_grad,
                                     MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT, self.pin_memory)
    for tensor in metadata.state_dict_metadata.values():
        if hasattr(tensor, "properties"):
            tensor.properties = old(dtype=tensor.properties.dtype)
    del metadata.storage_meta, metadata.version
    (folder / ".metadata").write_bytes(pickle.dumps(metadata, 4))


# As in tests/torch_files/dcp_sample.h.
SAMPLE = {"model": {"a.weight": (torch.float32, (7, 5)), "b.weight": (torch.bfloat16, (4, 6)),
                    "b.bias": (torch.float32, (2,)), "none": (torch.float32, (0, 3))},
          "optim.state.a.weight": {"exp_avg": (torch.float32, (7, 5)), "step": (torch.float32, ())}}


def sample_value(name, dtype, shape):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) + len(name)) / 4).reshape(shape).to(dtype)


def check_sample(folder, mesh=None):
    """Loads the sample into tensors of zeros, cut along their first dim where there is a mesh."""
    def zeros(dtype, shape):
        tensor = torch.zeros(shape, dtype=dtype)
        if mesh is None or not shape:
            return tensor
        return torch.distributed.tensor.distribute_tensor(tensor, mesh, [torch.distributed.tensor.Shard(0)])

    state = {part: {n: zeros(*about) for n, about in names.items()} for part, names in SAMPLE.items()}
    state["counter"] = torch.zeros((), dtype=torch.int64)
    state["optim"] = {"param_groups": [{"lr": 0.0, "betas": (0.0, 0.0)}]}
    state["note"] = {"list": []}
    dcp.load(state, checkpoint_id=folder)
    for part, names in SAMPLE.items():
        for name, about in names.items():
            tensor = state[part][name]
            tensor = tensor.full_tensor() if mesh is not None and about[1] else tensor
            assert torch.equal(tensor, sample_value(f"{part}.{name}", *about)), name
    assert state["counter"].item() == 2**40
    assert state["optim"]["param_groups"][0] == {"lr": 3e-4, "betas": (0.9, 0.95)}
    assert state["note"] == {"list": [-1, 255, 65535, 65536, -(2**63), None, True]}, state["note"]


def check_rank(rank, port, folder):
    start_rank(rank, port, 2)
    check_sample(folder, torch.distributed.init_device_mesh("cpu", (2,)))
    torch.distributed.destroy_process_group()


def check(tool):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([tool, "write", folder], check=True)
        check_sample(folder)
        torch.multiprocessing.spawn(check_rank, (29518, folder), nprocs=2)
        whole = pathlib.Path(folder) / "whole.pt"
        dcp_to_torch_save(folder, whole)
        loaded = torch.load(whole, weights_only=True)
        assert loaded["optim"]["param_groups"][0]["lr"] == 3e-4, loaded
    print("PyTorch reads what dcp_tool writes")


def main():
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        return check(sys.argv[2])
    if sys.argv[1:] != ["write"]:
        sys.exit(__doc__)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    os.chdir(OUT)  # a checkpoint notes the path that it was saved to
    archives()
    model()
    consolidated()
    hostile()
    one_rank()
    torch.multiprocessing.spawn(rank_of_four, (29517,), nprocs=4)
    old_metadata()


if __name__ == "__main__":
    main()
