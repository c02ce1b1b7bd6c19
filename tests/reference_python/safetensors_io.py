"""Reads and writes safetensors files from the format's public definition alone: 8 bytes little-endian
length, a JSON header {name: {dtype, shape, data_offsets}}, raw data. Independent of meshplan's code.
"""
import json
import os
import struct

import numpy as np

_NUMPY = {"F32": np.float32, "F16": np.float16, "F64": np.float64}


def load_file(path):
    with open(path, "rb") as file:
        blob = file.read()
    (length,) = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = blob[8 + length + begin:8 + length + end]
        if entry["dtype"] == "BF16":  # the upper half of a float32
            bits = np.frombuffer(raw, "<u2").astype(np.uint32) << 16
            values = bits.view(np.float32)
        else:
            values = np.frombuffer(raw, _NUMPY[entry["dtype"]]).astype(np.float32)
        tensors[name] = values.reshape(entry["shape"]).copy()
    return tensors


def save_file(tensors, path):
    header, blobs, offset = {}, [], 0
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values, np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape),
                        "data_offsets": [offset, offset + len(raw)]}
        blobs.append(raw)
        offset += len(raw)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def load_folder(folder):
    """All tensors of a Hugging Face folder, in one file or in shards with an index."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return load_file(os.path.join(folder, "model.safetensors"))
    with open(index) as file:
        weight_map = json.load(file)["weight_map"]
    tensors = {}
    for name in sorted(set(weight_map.values())):
        tensors.update(load_file(os.path.join(folder, name)))
    assert set(tensors) == set(weight_map)
    return tensors
