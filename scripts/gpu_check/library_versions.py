#!/usr/bin/env python3
"""Asks NVIDIA's libraries among the given files for their versions: library_versions.py FILE... Needs no GPU."""
import ctypes
import os
import sys


def dotted(number, factor):
    """8 and 9 digit versions: major * factor^2 + minor * factor + patch, e.g. 130100 with 100 is 13.1.0."""
    return f"{number // factor**2}.{number // factor % factor}.{number % factor}"


def cudnn(library):
    number = library.cudnnGetVersion()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def nccl(library):
    number = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(number))
    return dotted(number.value, 100)


def cublas_lt(library):
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    return dotted(library.cublasLtGetVersion(), 100)


ASKED = {"libcudnn.so": ("cuDNN", cudnn), "libnccl.so": ("NCCL", nccl), "libcublasLt.so": ("cuBLASLt", cublas_lt)}

for file in sys.argv[1:]:
    for prefix, (name, ask) in ASKED.items():
        if os.path.basename(file).startswith(prefix):
            print(name, ask(ctypes.CDLL(file)), sep="\t")
