#!/usr/bin/env python3
"""Writes random token ids for benchmarks: random_tokens.py FILE.u16|FILE.u32 VOCABULARY COUNT

Which ids does not matter for the time, but a model with a real vocabulary takes no text of bytes.
"""
import array
import random
import sys

path, vocabulary, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
kind = {".u16": "H", ".u32": "I"}.get(path[-4:]) or sys.exit(f"{path}: must end in .u16 or .u32")
if kind == "H" and vocabulary > 1 << 16:
    sys.exit(f"{path}: ids below {vocabulary} need .u32")
random.seed(1)
with open(path, "wb") as file:
    array.array(kind, (random.randrange(vocabulary) for _ in range(count))).tofile(file)
