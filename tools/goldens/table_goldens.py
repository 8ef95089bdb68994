#!/usr/bin/env python3
"""Tables of pyarrow: goldens, and a comparison of many random ones.

    table_goldens.py write [FOLDER]               tests/goldens/tables
    table_goldens.py check PROGRAM [N] [SEED]     PROGRAM: build/dev/tests/tables/table_dump

`check` writes N random tables (300) over types, nulls, encodings, codecs, page versions, page and
row-group sizes, has PROGRAM print them, first batch first and last batch first, and holds that
against what pyarrow reads. What is expected of a table is text: a line "column NAME TYPE" for each
column, and for each that can be read "values of NAME" and a line a row: null; x and the bytes of a
text in hexadecimal digits; an integer; [1,2,3]; JSON of what is nested.
"""

import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]


# What a table has to be read as.

def is_integer(t):
    return pa.types.is_integer(t) or pa.types.is_boolean(t)


def is_text(t):
    return any(f(t) for f in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary,
                              pa.types.is_large_binary, pa.types.is_string_view, pa.types.is_binary_view))


def is_list(t):
    return pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t)


def is_readable(t):
    if is_list(t):
        return is_readable(t.value_type)
    if pa.types.is_map(t):
        return is_readable(t.key_type) and is_readable(t.item_type)
    if pa.types.is_struct(t):
        return all(is_readable(field.type) for field in t)
    if pa.types.is_dictionary(t):
        return is_text(t.value_type)
    return is_integer(t) or is_text(t) or t in (pa.float32(), pa.float64(), pa.null())


def kind(t):
    if pa.types.is_dictionary(t):
        return "text" if is_text(t.value_type) else "other"
    if is_text(t):
        return "text"
    if is_integer(t):
        return "integer"
    if is_list(t) and is_integer(t.value_type):
        return "integers"
    if (is_list(t) or pa.types.is_struct(t) or pa.types.is_map(t)) and is_readable(t):
        return "nested"
    return "other"


def nested(value, t):
    """The value as JSON has it: a map is a list of its entries, text in bytes is text."""
    if value is None:
        return None
    if pa.types.is_map(t):
        return [{"key": nested(k, t.key_type), "value": nested(v, t.item_type)} for k, v in value]
    if is_list(t):
        return [nested(v, t.value_type) for v in value]
    if pa.types.is_struct(t):
        return {field.name: nested(value[field.name], field.type) for field in t}
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def value_text(value, t):
    if value is None:
        return "null"
    if kind(t) == "text":
        return "x" + (value.encode() if isinstance(value, str) else value).hex()
    if kind(t) == "integer":
        return str(int(value))
    if kind(t) == "integers":
        return "[" + ",".join(str(int(v)) for v in value) + "]"
    return json.dumps(nested(value, t), separators=(",", ":"), ensure_ascii=False)


def expected_text(table):
    lines = [f"column {field.name} {kind(field.type)}" for field in table.schema]
    for field in table.schema:
        if kind(field.type) != "other":
            lines.append(f"values of {field.name}")
            lines += [value_text(v, field.type) for v in table[field.name].to_pylist()]
    return "".join(line + "\n" for line in lines)


# Random values.

def random_text(rng, longest=40):
    alphabet = rng.choice(["ab", "abcdefghij \n\t\"\\", "aé漢🙂\x01\x1f\x7f/"])
    return "".join(rng.choice(alphabet) for _ in range(rng.choice([0, 1, 3, rng.randrange(longest)])))


def random_value(rng, t, nulls):
    if rng.random() < nulls and not pa.types.is_map(t):
        return None
    if pa.types.is_null(t):
        return None
    if pa.types.is_dictionary(t):  # few different ones, for indices of 8 bits
        return f"word {rng.randrange(50)}" * rng.randrange(2)
    if pa.types.is_boolean(t):
        return rng.random() < 0.5
    if pa.types.is_integer(t):
        signed = pa.types.is_signed_integer(t)
        low, high = (-(1 << t.bit_width - 1), (1 << t.bit_width - 1) - 1) if signed else (0, (1 << min(t.bit_width, 63)) - 1)
        return rng.choice([0, 1, low, high, rng.randint(low, high), rng.randint(max(low, 0), min(high, 100))])
    if pa.types.is_float32(t):
        return struct.unpack("f", struct.pack("f", rng.uniform(-1e3, 1e3)))[0]
    if pa.types.is_float64(t):
        return rng.choice([0.0, rng.uniform(-1, 1), rng.uniform(-1e30, 1e30)])
    if is_text(t):
        text = random_text(rng)
        return text if t in (pa.string(), pa.large_string(), pa.string_view()) else text.encode()
    if pa.types.is_map(t):
        return [(random_value(rng, t.key_type, 0), random_value(rng, t.item_type, nulls)) for _ in range(rng.randrange(3))]
    if pa.types.is_fixed_size_list(t):
        return [random_value(rng, t.value_type, element_nulls(t, nulls)) for _ in range(t.list_size)]
    if is_list(t):
        count = rng.choice([0, 1, 2, rng.randrange(20)])
        return [random_value(rng, t.value_type, element_nulls(t, nulls)) for _ in range(count)]
    if pa.types.is_struct(t):
        return {field.name: random_value(rng, field.type, nulls) for field in t}
    if pa.types.is_timestamp(t):
        return rng.randrange(1 << 40)
    raise TypeError(t)


def element_nulls(t, nulls):
    return 0 if is_integer(t.value_type) else nulls  # an id is never null


def random_type(rng, depth, parquet):
    choices = ["text", "integer", "bool", "integers", "integers"]
    if depth > 0:
        choices += ["float", "null"]
    if depth == 0:
        choices += ["other"]
    if depth == 0 or not parquet:
        choices += ["dictionary"]
    if not parquet:
        choices += ["view"]
    if depth < 3:
        choices += ["list", "struct", "messages", "map"]
    choice = rng.choice(choices)
    if choice == "text":
        return rng.choice(TEXTS)
    if choice == "view":
        return rng.choice([pa.string_view(), pa.binary_view()])
    if choice == "integer":
        return rng.choice(INTEGERS)
    if choice == "bool":
        return pa.bool_()
    if choice == "float":
        return rng.choice([pa.float32(), pa.float64()])
    if choice == "null":
        return pa.null()
    if choice == "other":
        return rng.choice([pa.float32(), pa.float64(), pa.timestamp("us"), pa.null()])
    if choice == "dictionary":
        return pa.dictionary(rng.choice([pa.int8(), pa.int32(), pa.uint16()]), pa.string())
    if choice == "integers":
        return random_list(rng, rng.choice(INTEGERS + [pa.bool_()]))
    if choice == "list":
        return random_list(rng, random_type(rng, depth + 1, parquet))
    if choice == "map":
        return pa.map_(pa.string(), random_type(rng, depth + 1, parquet))
    if choice == "messages":
        return pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    return pa.struct([(f"f{i}", random_type(rng, depth + 1, parquet)) for i in range(rng.randrange(1, 4))])


def random_list(rng, element):
    return rng.choice([pa.list_(element), pa.list_(element), pa.large_list(element), pa.list_(element, rng.randrange(1, 4))])


def random_table(rng, parquet):
    rows = rng.choice([0, 1, 2, 7, 8, 9, 63, 64, 65, 100, 500, 1000])
    long = rng.random() < 0.04
    fields, columns = [], []
    for i in range(1 if long else rng.randrange(1, 6)):
        t = random_type(rng, 0, parquet)
        if long:
            rows, t = rng.randrange(9000, 30000), rng.choice([pa.string(), pa.int32(), pa.list_(pa.int32())])
        nulls = rng.choice([0, 0, 0.1, 0.5, 1.0])
        values = [random_value(rng, t, nulls) for _ in range(rows)]
        if rng.random() < 0.3 and rows > 0:  # runs of one value
            values = [values[j // 10 * 10] for j in range(rows)]
        nullable = any(v is None for v in values) or pa.types.is_null(t) or rng.random() < 0.5
        fields.append(pa.field(f"c{i}", t, nullable=nullable))
        columns.append(pa.array(values, t))
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    if rows > 10 and rng.random() < 0.3:  # buffers that do not begin at their first row
        table = table.slice(rng.randrange(10), rows - 10)
    return table


# Random files.

def has_dictionary(t):
    return pa.types.is_dictionary(t)


def encoding_of(rng, t):
    if is_text(t):
        return rng.choice(["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
    if pa.types.is_boolean(t):
        return rng.choice(["PLAIN", "RLE"])
    if pa.types.is_integer(t):
        return rng.choice(["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"])
    return rng.choice(["PLAIN", "BYTE_STREAM_SPLIT"]) if pa.types.is_floating(t) else "PLAIN"


def leaves(name, t):
    if is_list(t):
        return leaves(f"{name}.list.element", t.value_type)
    if pa.types.is_map(t):
        return leaves(f"{name}.key_value.key", t.key_type) + leaves(f"{name}.key_value.value", t.item_type)
    if pa.types.is_struct(t):
        return [leaf for field in t for leaf in leaves(f"{name}.{field.name}", field.type)]
    return [(name, t)]


def write_parquet(rng, table, path):
    dictionary = rng.choice([True, True, False])
    options = {}
    if not dictionary and not any(has_dictionary(f.type) for f in table.schema):
        options["column_encoding"] = {leaf: encoding_of(rng, t) for f in table.schema for leaf, t in leaves(f.name, f.type)}
    options |= dict(
        use_dictionary=dictionary, compression=rng.choice(CODECS),
        data_page_version=rng.choice(["1.0", "2.0"]), version=rng.choice(["1.0", "2.4", "2.6"]),
        data_page_size=rng.choice([1, 100, 1000, 1 << 20]), write_batch_size=rng.choice([1, 3, 1024]),
        dictionary_pagesize_limit=rng.choice([10, 200, 1 << 20]), row_group_size=rng.choice([1, 50, 333, 1 << 20]) if table.num_rows < 5000 else 11000,
        write_page_checksum=rng.random() < 0.5, write_page_index=rng.random() < 0.3,
        write_statistics=rng.random() < 0.7, store_schema=rng.random() < 0.5,
        use_compliant_nested_type=rng.random() < 0.7,
        max_rows_per_page=rng.choice([1, 20, 20000]))
    if not options["use_compliant_nested_type"] and "column_encoding" in options:
        options["column_encoding"] = {k.replace(".list.element", ".list.item"): v for k, v in options["column_encoding"].items()}
    pq.write_table(table, path, **options)
    return options


def write_arrow(rng, table, path):
    codec = rng.choice([None, None, "lz4", "zstd"])
    form = rng.choice(["stream", "file", "legacy", "feather"])
    rows = rng.choice([1, 33, 1000, 100000]) if table.num_rows < 5000 else 100000
    options = ipc.IpcWriteOptions(compression=codec, use_legacy_format=form == "legacy", emit_dictionary_deltas=rng.random() < 0.5)
    if form == "feather":
        feather.write_feather(table, str(path), compression=codec or "uncompressed", chunksize=rows)
    else:
        make = ipc.new_file if form == "file" else ipc.new_stream
        with make(str(path), table.schema, options=options) as writer:
            for batch in table.to_batches(max_chunksize=rows):
                writer.write_batch(batch)
    return dict(form=form, codec=codec, rows=rows)


def same(line, other, nested_column):
    if line == other:
        return True
    return nested_column and close(json.loads(line), json.loads(other))


def close(a, b):
    """Equal, but for floats of 32 bits, whose shortest decimals are not those of 64 bits."""
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-7)
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    return a == b


def difference(expected, got):
    """The first line that differs, or None."""
    nested_columns = {line.split()[1] for line in expected.splitlines() if line.startswith("column ") and line.endswith(" nested")}
    want, have = expected.split("\n"), got.split("\n")
    inside = False
    for i, (a, b) in enumerate(zip(want, have)):
        if a.startswith("values of "):
            inside = a[10:] in nested_columns
        if not same(a, b, inside and a[:1] in "[{" and b[:1] in "[{"):
            return f"line {i + 1}: {b[:200]!r}, not {a[:200]!r}"
    return None if len(want) == len(have) else f"{len(have)} lines, not {len(want)}"


def check(program, count, seed):
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            rng = random.Random(f"{seed} {i}")
            parquet = rng.random() < 0.6
            table = random_table(rng, parquet)
            path = pathlib.Path(folder) / f"t{i}"
            if parquet:
                options = write_parquet(rng, table, path)
            else:
                options = write_arrow(rng, table, path)
            expected = expected_text(table)
            for order in ([], ["--backwards"]):
                run = subprocess.run([program, *order, str(path)], capture_output=True, text=True)
                got = run.stdout.partition("\n")[2]
                wrong = difference(expected, got) or (f"exit status {run.returncode}" if run.returncode else None)
                if wrong:
                    failures += 1
                    print(f"table {i}: {wrong}\n  {order} {options}\n  {table.schema.to_string()}")
                    break
            path.unlink()
    print(f"{count} tables, {failures} differ; pyarrow {pa.__version__}, seed {seed}")
    return 1 if failures else 0


# Goldens.

WORDS = ["", "a", "bb", "the quick brown fox", "é漢🙂", "line\nbreak \"quoted\" \\ \t", "the quick brown dog"]


def golden_table(rows, seed):
    """What training data looks like, and beside it what has to be passed over."""
    rng = random.Random(seed)
    none = lambda value: None if rng.random() < 0.2 else value
    ids = lambda low, high: [rng.randrange(low, high) for _ in range(rng.choice([0, 1, 2, 9]))]
    message = lambda: {"role": rng.choice(["system", "user", "assistant"]), "content": none(rng.choice(WORDS))}
    columns = {
        "score": pa.array([none(rng.random()) for _ in range(rows)], pa.float64()),
        "text": pa.array([none(rng.choice(WORDS)) for _ in range(rows)], pa.string()),
        "input_ids": pa.array([ids(0, 50000) for _ in range(rows)], pa.list_(pa.int32())),
        "attention_mask": pa.array([ids(0, 2) for _ in range(rows)], pa.list_(pa.int8())),
        "labels": pa.array([none(ids(-100, 1 << 33)) for _ in range(rows)], pa.list_(pa.int64())),
        "messages": pa.array([none([message() for _ in range(rng.randrange(3))]) for _ in range(rows)],
                             pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        "id": pa.array([none(rng.randrange(1 << 16)) for _ in range(rows)], pa.uint16()),
    }
    return pa.table(columns)


def constant_table(rows):
    """Few different values: runs and dictionaries."""
    return pa.table({"text": pa.array([WORDS[i // 9 % 3 + 1] for i in range(rows)]),
                     "mask": pa.array([[True] * 5] * rows, pa.list_(pa.bool_())),
                     "n": pa.array([i // 7 for i in range(rows)], pa.int64())})


def deep_table():
    element = pa.struct([("name", pa.string()), ("args", pa.list_(pa.list_(pa.int16()))), ("map", pa.map_(pa.string(), pa.float32()))])
    values = [None, [], [None], [{"name": "f", "args": [[1, 2], [], None], "map": [("k", 0.5), ("l", None)]}],
              [{"name": None, "args": None, "map": None}, {"name": "", "args": [], "map": []}]]
    return pa.table({"calls": pa.array(values * 3, pa.list_(element)),
                     "flat": pa.array([{"a": i, "b": None if i % 2 else True} for i in range(15)], pa.struct([("a", pa.uint64()), ("b", pa.bool_())])),
                     "triples": pa.array([[i, i + 1, i + 2] if i % 4 else None for i in range(15)], pa.list_(pa.int32(), 3))})


def write_goldens(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "refused").mkdir(exist_ok=True)
    for old in folder.glob("**/*.*"):
        old.unlink()

    def keep(name, table, write):
        write(table, str(folder / name))
        expected = (folder / name).with_suffix(".expected")
        expected.write_text(expected_text(table), encoding="utf-8")

    def arrow(make=ipc.new_stream, rows=16, **options):
        def write(table, path):
            with make(path, table.schema, options=ipc.IpcWriteOptions(**options)) as writer:
                for batch in table.to_batches(max_chunksize=rows):
                    writer.write_batch(batch)
        return write

    def parquet(**options):
        return lambda table, path: pq.write_table(table, path, **options)

    table = golden_table(40, 1)
    keep("stream.arrow", table, arrow())
    keep("stream_legacy.arrow", table, arrow(use_legacy_format=True))
    keep("stream_sliced.arrow", golden_table(60, 2).slice(13, 30), arrow(rows=11))
    keep("stream_zstd.arrow", table, arrow(compression="zstd"))
    keep("file.arrow", table, arrow(ipc.new_file))
    keep("file_lz4.arrow", table, arrow(ipc.new_file, compression="lz4"))
    keep("deep.arrow", deep_table(), arrow())
    large = pa.schema([("text", pa.large_string()), ("ids", pa.large_list(pa.uint32())), ("view", pa.string_view()), ("bytes", pa.binary())])
    keep("large.arrow", pa.table([table["text"], [[i, i << 8] for i in range(40)], [w * 3 for w in WORDS * 6][:40],
                                  [bytes([i, 255]) for i in range(40)]], schema=large), arrow())
    # Rows of ids as data sets keep them: ids of 32 bits, a mask of 8, labels of 64.
    ids = [[(7 * i + t) % 250 for t in range(20)] for i in range(24)]
    kept = [20 - i % 3 for i in range(24)]
    rows = pa.table({"input_ids": pa.array(ids, pa.list_(pa.int32())),
                     "attention_mask": pa.array([[int(t < k) for t in range(20)] for k in kept], pa.list_(pa.int8())),
                     "labels": pa.array([[-100 if t < 5 else x for t, x in enumerate(row)] for row in ids], pa.list_(pa.int64()))})
    keep("rows.arrow", rows, arrow())
    keep("rows.parquet", rows, parquet(compression="snappy"))
    # Rows of ids and a conversation as TRL's users keep them; a column of nulls alone has a type of its own.
    masks = pa.table({"input_ids": [[1, 2, 3], [4, 5, 6]], "completion_mask": pa.array([[0, 1, 1], [0, 0, 1]], pa.list_(pa.int8())),
                      "labels": pa.nulls(2), "attention_mask": pa.nulls(2)})
    said = [{"role": role, "content": content} for role, content in zip(["user", "assistant"] * 2, "abcd")]
    chats = pa.table({"prompt": [said[:3]], "completion": [said[3:]], "messages": pa.nulls(1), "tools": pa.nulls(1)})
    for name, rows in {"masks": masks, "chats": chats}.items():
        keep(f"{name}.arrow", rows, arrow())
        keep(f"{name}.parquet", rows, parquet())
    words = pa.table({"word": pa.chunked_array([pa.array(WORDS[:n], pa.string()).dictionary_encode() for n in (2, 4, 7)])})
    for name, options in {"dictionary": {}, "dictionary_delta": dict(emit_dictionary_deltas=True)}.items():
        keep(f"{name}.arrow", words, arrow(**options))
    keep("dictionary_file.arrow", words.unify_dictionaries(), arrow(ipc.new_file))

    small = dict(data_page_size=200, write_batch_size=4, store_schema=False)
    for codec in CODECS:
        version = "2.0" if codec in ("gzip", "zstd", "none") else "1.0"
        keep(f"{codec}.parquet", table, parquet(compression=codec, data_page_version=version, write_page_checksum=True, **small))
    plain = dict(use_dictionary=False, compression="none", **small)
    keep("plain_v1.parquet", table, parquet(**plain))
    keep("plain_v2.parquet", table, parquet(data_page_version="2.0", **plain))
    encodings = {"score": "BYTE_STREAM_SPLIT", "text": "DELTA_BYTE_ARRAY", "input_ids.list.element": "DELTA_BINARY_PACKED",
                 "attention_mask.list.element": "BYTE_STREAM_SPLIT", "labels.list.element": "DELTA_BINARY_PACKED",
                 "messages.list.element.role": "DELTA_LENGTH_BYTE_ARRAY", "messages.list.element.content": "DELTA_BYTE_ARRAY",
                 "id": "DELTA_BINARY_PACKED"}
    for version in "12":
        keep(f"delta_v{version}.parquet", table, parquet(column_encoding=encodings, data_page_version=f"{version}.0", **plain))
    keep("runs.parquet", constant_table(300), parquet(row_group_size=128, store_schema=False, column_encoding={"n": "DELTA_BINARY_PACKED"}, use_dictionary=["text", "mask.list.element"]))
    keep("falls_back.parquet", golden_table(80, 3), parquet(dictionary_pagesize_limit=20, row_group_size=30, **small))
    keep("deep.parquet", deep_table(), parquet(**small))
    keep("deep_v2.parquet", deep_table(), parquet(data_page_version="2.0", use_compliant_nested_type=False, **small))
    # What is not read, for its error.
    arrow()(pa.table({"ids": pa.array([[1, None]], pa.list_(pa.int32()))}), str(folder / "refused/null_inside.arrow"))
    arrow()(pa.table({"n": pa.array([1, (1 << 64) - 1], pa.uint64())}), str(folder / "refused/uint64.arrow"))
    deep = pa.int32()
    for _ in range(40):
        deep = pa.list_(deep)
    arrow()(pa.table({"ids": pa.array([], deep)}), str(folder / "refused/deep.arrow"))

    manifest = {"pyarrow": pa.__version__, "script": "tools/goldens/table_goldens.py"}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    for path in sorted(folder.glob("*")):
        print(path.stat().st_size, path.name)


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "write":
        here = pathlib.Path(__file__).parents[2] / "tests/goldens/tables"
        return write_goldens(pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else here)
    if command == "check" and len(sys.argv) > 2:
        count = int(sys.argv[3]) if len(sys.argv) > 3 else 300
        return check(sys.argv[2], count, int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main())
