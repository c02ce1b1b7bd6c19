#!/usr/bin/env python3
"""Thins tables of measured operators to what interpolation needs.

    scripts/thin_operators.py ../shared/reference/operators sim/operators

Of each device and kind of operator it keeps, one after another, the shape that the others tell worst, until nine of
ten are told to within 2 % or there are enough. What is interpolated is the time over the work's size (FLOP, pairs of
a query and a key, bytes, of linear attention what an H100 would take about), as sim/src/prices/measured_shapes.cpp does with the time over the formula's. Kept are shapes
that training meets: products with all sides of at least 1,024, attention of at least four heads and 1,024 tokens over
at most 16 sequences, collectives of at least 64 KiB, exchanges of experts' rows inside a node (what several nodes
reach is their network's).
"""
import collections
import csv
import math
import pathlib
import sys

ENOUGH = {"gemm": 900, "attention": 400, "mla": 140, "nccl": 400, "deepep": 120, "linear_attention": 160}
TOLD = 0.02
LEAST_SIDE = LEAST_TOKENS = 1024
LEAST_HEADS = 4
MOST_SEQUENCES = 16
LEAST_MESSAGE = 1 << 16
RANKS = 8  # of a node


def gemm(row):
    m, n, k = (int(row[c]) for c in ("m", "n", "k"))
    if min(m, n, k) < LEAST_SIDE:
        return None
    return (row["dtype"],), (m, n, k), m * n * k


def attention(row):
    batch, seq, heads, kv = (int(row[c]) for c in ("batch", "seq", "heads", "kv_heads"))
    window = int(row["window"])
    if heads < LEAST_HEADS or seq < LEAST_TOKENS or batch > MOST_SEQUENCES:
        return None
    keys = min(window or seq, seq)
    sizes = (batch * heads, seq, heads / kv)
    return (row["dtype"], row["head_dim"], row["window"]), sizes, batch * seq * heads * keys


def mla(row):
    batch, seq, heads = (int(row[c]) for c in ("batch", "seq", "heads"))
    return (row["dtype"],), (batch, seq, heads), batch * seq * seq * heads


def linear_attention(row):
    """Work in us: starts, chunks one after another, and tokens of all heads; or elements of the convolution."""
    batch, seq, keys, heads = (int(row[c]) for c in ("batch", "seq", "heads_k", "heads_v"))
    if seq < LEAST_TOKENS or batch > MOST_SEQUENCES:
        return None
    kind = (row["kind"], row["kernel"])
    if row["kernel"].startswith("chunk_"):
        return kind, (batch, seq, heads**2, (heads / keys) ** 2), 40 + 1.5 * seq / 64 + 0.0025 * batch * seq * heads
    shared = int(row["groups"]) * int(row["state"]) if row["groups"] else keys * int(row["dim_k"])
    channels = 2 * shared + heads * int(row["dim_v"])
    return kind, (batch, seq, channels), 4 + 1.7e-6 * batch * seq * channels


def nccl(row):
    size = int(row["message_size"]) * (2 if row["dtype"] == "half" else 1)
    if row["dtype"] != "half" or size < LEAST_MESSAGE:
        return None
    return (row["operation"], row["ranks"]), (size,), size


def deepep(row):
    hidden, tokens, top_k, experts, sms = (
        int(row[c]) for c in ("hidden", "tokens_per_rank", "top_k", "experts", "sms"))
    if row["nodes"] != "1":
        return None
    others = experts - experts // RANKS
    ranks = RANKS * (1 - math.comb(others, top_k) / math.comb(experts, top_k))  # that hold experts of a token
    return (), (tokens, hidden, ranks, sms), tokens * ranks * hidden


def seconds(row):
    """Of a line: both ways of an exchange are thinned together."""
    return float(row["time_us"]) if "time_us" in row else float(row["dispatch_us"]) + float(row["combine_us"])


def thinned(rows, enough):
    """@param rows  (sizes, logarithm of time over work, line) of one kind  @returns lines"""
    points = [[math.log2(s) for s in sizes] for sizes, _, _ in rows]
    corners = len(points[0]) + 1
    near = [[] for _ in rows]  # of each: (squared distance, kept row), the nearest first
    told = [None] * len(rows)
    kept = []

    def keep(new):
        kept.append(new)
        for i, point in enumerate(points):
            if told[i] == 0:
                continue
            d = sum((a - b) ** 2 for a, b in zip(point, points[new]))
            if d == 0:
                told[i] = 0
            elif len(near[i]) < corners or d < near[i][-1][0]:
                near[i] = sorted(near[i] + [(d, new)])[:corners]
                weights = sum(1 / d for d, _ in near[i])
                mean = sum(rows[j][1] / d for d, j in near[i]) / weights
                told[i] = abs(mean - rows[i][1])

    keep(max(range(len(rows)), key=lambda i: sum(points[i])))
    while len(kept) < min(enough, len(rows)):
        if sorted(told)[int(0.9 * (len(told) - 1))] <= TOLD:
            break
        keep(max(range(len(rows)), key=lambda i: told[i]))
    return [rows[i][2] for i in kept]


def main():
    source, target = (pathlib.Path(a) for a in sys.argv[1:3])
    for name, describe in (("gemm", gemm), ("attention", attention), ("mla", mla),
                           ("linear_attention", linear_attention), ("nccl", nccl), ("deepep", deepep)):
        kinds = collections.defaultdict(dict)
        with open(source / f"{name}.csv", newline="") as file:
            reader = csv.DictReader(file)
            for row in reader:
                if (described := describe(row)) is None:
                    continue
                kind, sizes, work = described
                line = ",".join(row[c] for c in reader.fieldnames)
                kinds[row["device"], kind].setdefault(sizes, (sizes, math.log(seconds(row) / work), line))
            header = ",".join(reader.fieldnames)
        devices = collections.defaultdict(list)
        for (device, _), rows in sorted(kinds.items()):
            lines = thinned(list(rows.values()), ENOUGH[name])
            devices[device] += sorted(lines)
            print(f"{name} {device}: {len(lines)} of {len(rows)}", flush=True)
        for device, lines in devices.items():
            (target / f"{device}.{name}.csv").write_text("\n".join([header, *lines]) + "\n")


if __name__ == "__main__":
    main()
