#!/usr/bin/env python3
"""One row of speed.tsv: speed_row.py MODEL PRECISION deterministic|no-deterministic PREDICTED.json RUN.json

Model, program, tokens/s, MFU, measured over predicted step time, tab-separated. PREDICTED is of `meshplan simulate --json`,
RUN of `meshplan run --json`.
"""
import json
import math
import sys


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    model, precision, deterministic, *files = sys.argv[1:]
    predicted, run = (json.load(open(file)) for file in files)
    if not all(map(math.isfinite, run["losses"])):
        sys.exit(f"{files[1]}: the losses are {run['losses']}")
    program = "meshplan" + (f", {precision}" if precision != "bf16" else "") + (", deterministic" if deterministic == "deterministic" else "")
    print(model, program, f"{run['tokens_per_s']:.0f}", f"{run['mfu']:.4f}",
          f"{run['median_step_time_s'] / predicted['step_time_s']:.3f}", sep="\t")


if __name__ == "__main__":
    main()
