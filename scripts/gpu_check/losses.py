#!/usr/bin/env python3
"""Compares the losses of runs (`meshplan run --json`).

losses.py within BOUND REFERENCE RUN   relative difference of every step; 1 where one is larger than BOUND
losses.py same RUN RUN...              bit for bit
"""
import json
import math
import sys


def losses_of(path):
    with open(path) as file:
        losses = json.load(file)["losses"]
    if not losses or not all(math.isfinite(loss) for loss in losses):
        sys.exit(f"{path}: the losses are {losses}")
    return losses


def within(bound, reference, run):
    """The largest difference, relative to the reference's loss of that step."""
    expected, actual = losses_of(reference), losses_of(run)
    if len(expected) != len(actual):
        sys.exit(f"{run}: {len(actual)} steps, {reference} has {len(expected)}")
    worst = max(abs(a - e) / abs(e) for a, e in zip(actual, expected))
    print(f"largest relative difference of {len(actual)} losses {worst:.2e}, bound {bound:.0e}")
    return worst <= bound


def same(first, *others):
    different = [path for path in others if losses_of(path) != losses_of(first)]
    for path in different:
        print(f"{path}: {losses_of(path)}\n{first}: {losses_of(first)}")
    print(f"{len(others) + 1} runs, {len(different)} with other losses than the first")
    return not different


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "within":
        return within(float(sys.argv[2]), *sys.argv[3:])
    if len(sys.argv) > 3 and sys.argv[1] == "same":
        return same(*sys.argv[2:])
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
