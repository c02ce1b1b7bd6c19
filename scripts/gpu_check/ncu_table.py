#!/usr/bin/env python3
"""The kernels that take longest, from `ncu --section SpeedOfLight --csv --log-file FILE`: ncu_table.py FILE COUNT"""
import collections
import csv
import sys

DURATION, COMPUTE, MEMORY = "Duration", "Compute (SM) Throughput", "Memory Throughput"
# to milliseconds, by both spellings of a unit
MS = {"ns": 1e-6, "nsecond": 1e-6, "us": 1e-3, "usecond": 1e-3, "ms": 1, "msecond": 1, "s": 1e3, "second": 1e3}


def launches_of(path):
    """{launch: {kernel, ms, compute and memory in percent}} in order; ncu prints notes before the table."""
    with open(path, newline="") as file:
        lines = [line for line in file if line.startswith('"')]
    launches = collections.defaultdict(dict)
    for row in csv.DictReader(lines):
        launch = launches[row["ID"]]
        launch["kernel"] = row["Kernel Name"]
        name, unit = row["Metric Name"], row["Metric Unit"]
        if name == DURATION:
            launch[name] = float(row["Metric Value"].replace(",", "")) * MS[unit]
        elif name in (COMPUTE, MEMORY) and unit == "%":
            launch[name] = float(row["Metric Value"].replace(",", ""))
    return [launch for launch in launches.values() if DURATION in launch]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    launches = launches_of(sys.argv[1])
    if not launches:
        sys.exit(f"{sys.argv[1]}: no launch with a duration")
    kernels = collections.defaultdict(list)
    for launch in launches:
        kernels[launch["kernel"]].append(launch)
    whole = sum(launch[DURATION] for launch in launches)

    def ms(name):
        return sum(launch[DURATION] for launch in kernels[name])

    def mean(name, metric):  # weighted by time
        return sum(launch.get(metric, 0) * launch[DURATION] for launch in kernels[name]) / ms(name)
    print(f"{len(launches)} launches, {whole:.3f} ms")
    print(f"{'ms':>9} {'share':>6} {'launches':>8} {'compute':>8} {'memory':>7}  kernel")
    for name in sorted(kernels, key=ms, reverse=True)[:int(sys.argv[2])]:
        print(f"{ms(name):9.3f} {100 * ms(name) / whole:5.1f}% {len(kernels[name]):8} {mean(name, COMPUTE):7.1f}% "
              f"{mean(name, MEMORY):6.1f}%  {name[:110]}")


if __name__ == "__main__":
    main()
