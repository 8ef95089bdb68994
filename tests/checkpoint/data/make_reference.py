"""Writes reference.safetensors with the format's own package (safetensors 0.8.0, numpy 2.4.6).

Run in a development-only environment: python3 make_reference.py
"""
import pathlib

import numpy as np
from safetensors.numpy import save_file

save_file(
    {
        "embed.weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
        "half": np.array([1.5, -2.0], dtype=np.float16),
        "step": np.array(7, dtype=np.int64),
        "ids": np.array([[1], [-2]], dtype=np.int32),
        "mask": np.array([True, False, True]),
        "empty": np.zeros((0, 4), dtype=np.float64),
    },
    pathlib.Path(__file__).with_name("reference.safetensors"),
    metadata={"format": "pt", "note": 'a "quoted" word'},
)
