#!/usr/bin/env python3
"""Compares the losses of runs (`meshplan run --json`) bit for bit: losses.py RUN RUN..."""
import json
import math
import sys


def losses_of(path):
    with open(path) as file:
        losses = json.load(file)["losses"]
    if not losses or not all(math.isfinite(loss) for loss in losses):
        sys.exit(f"{path}: the losses are {losses}")
    return losses


def same(first, *others):
    different = [path for path in others if losses_of(path) != losses_of(first)]
    for path in different:
        print(f"{path}: {losses_of(path)}\n{first}: {losses_of(first)}")
    print(f"{len(others) + 1} runs, {len(different)} with other losses than the first")
    return not different


def main():
    if len(sys.argv) > 2:
        return same(*sys.argv[1:])
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
