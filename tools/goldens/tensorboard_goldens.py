#!/usr/bin/env python3
"""Writes tests/goldens/tensorboard_events.bin: event records as TensorBoard's own messages and writer make them.

    python3 -m venv /tmp/venv-tb && /tmp/venv-tb/bin/pip install tensorboard==2.21.0
    /tmp/venv-tb/bin/python tools/goldens/tensorboard_goldens.py
"""

import io
import pathlib

import numpy

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

TIME = 1800000000.25


def main():
    scalars = [summary_pb2.Summary.Value(tag=tag, simple_value=value)
               for tag, value in (("Loss/train", 2.5), ("LR/learning_rate", 1e-4), ("Norms/grad_norm", float("inf")))]
    text = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=["| a | b |\n".encode() * 20],
                                  tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)]))
    plugin = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"))
    events = [
        event_pb2.Event(wall_time=TIME, file_version="brain.Event:2"),
        event_pb2.Event(wall_time=TIME, step=300, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START)),
        event_pb2.Event(wall_time=TIME, step=70000, summary=summary_pb2.Summary(value=scalars)),
        event_pb2.Event(wall_time=TIME, step=0, summary=summary_pb2.Summary(value=[
            summary_pb2.Summary.Value(tag="Arguments", tensor=text, metadata=plugin)])),
    ]
    limits = [1e-12]
    while limits[-1] < 1e20:
        limits.append(limits[-1] * 1.1)
    numbers = [-2.0, 0.0, 0.5, 0.5, float(numpy.float32(1e-20))]
    below = {x: max(limit for limit in limits if limit <= x) for x in (0.5, 2.0)}
    above = {x: min(limit for limit in limits if limit > x) for x in (0.5, 2.0)}
    buckets = [(-above[2.0], 0), (-below[2.0], 1), (-1e-12, 0), (1e-12, 2), (below[0.5], 0), (above[0.5], 2)]
    events.append(event_pb2.Event(wall_time=TIME, step=5, summary=summary_pb2.Summary(value=[
        summary_pb2.Summary.Value(tag="Weights/a", histo=summary_pb2.HistogramProto(
            min=min(numbers), max=max(numbers), num=len(numbers), sum=sum(numbers), sum_squares=sum(x * x for x in numbers),
            bucket_limit=[limit for limit, _ in buckets], bucket=[count for _, count in buckets]))])))
    file = io.BytesIO()
    writer = RecordWriter(file)
    for event in events:
        writer.write(event.SerializeToString(deterministic=True))
    root = pathlib.Path(__file__).parents[2]
    (root / "tests/goldens/tensorboard_events.bin").write_bytes(file.getvalue())


if __name__ == "__main__":
    main()
