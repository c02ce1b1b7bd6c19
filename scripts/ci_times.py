#!/usr/bin/env python3
"""Prints where the time of a run of .ci/run went, and warns if it took more than it should.

    scripts/ci_times.py FOLDER      what .ci/run writes into build/ci_times

Reads parts.tsv and tests_*.tsv (name, seconds, processor seconds in user and system mode),
labels_*.json (ctest --show-only=json-v1), ccache.log (CCACHE_STATSLOG) and ninja's logs. Exit code 0 always: a
machine that others use may be slow.
"""
import collections
import json
import os
import pathlib
import re
import sys

# Seconds that a part should take on two cores: with a warm compiler's cache, and on a machine that
# has nothing. Sums: 20 and 45 minutes.
BUDGET = {
    "packages": (10, 60),
    "classroom": (20, 220),
    "build": (120, 800),
    "tests": (520, 520),
    "clang-tidy": (60, 120),
    "sanitizers: build": (60, 650),
    "sanitizers: tests": (240, 240),
    "mutated inputs": (50, 50),
    "fresh machine": (120, 40),
}
KINDS = ((r"\.(o|obj)$", "compile"), (r"(^|/)(meshplan|test_|lib|example_|.*_bench$|.*_mpi_test$)", "link"))


def read_tsv(path):
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def ninja_steps(log):
    """Seconds of each step of the last build that a log tells of, by what the step makes."""
    steps = {}
    for line in read_tsv(log):
        if len(line) == 5:
            steps[line[3]] = (int(line[1]) - int(line[0])) / 1000
    seconds = collections.Counter()
    for output, taken in steps.items():
        kind = next((kind for pattern, kind in KINDS if re.search(pattern, output)), "generate")
        seconds[kind] += taken
    return seconds


def cache_was_warm(log):
    """Whether four of five files came out of the compiler's cache."""
    calls = collections.Counter(log.read_text().split() if log.exists() else [])
    return calls["direct_cache_hit"] + calls["preprocessed_cache_hit"] > 4 * calls["cache_miss"]


def labels_of(path):
    """Labels of each test, from `ctest --show-only=json-v1`."""
    if not path.exists():
        return {}
    labels = {}
    for test in json.loads(path.read_text())["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        labels[test["name"]] = "+".join(properties.get("LABELS", ["other"]))
    return labels


def show(rows, heads):
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    for row in [heads, *rows]:
        print("  " + "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))).rstrip())


def main():
    folder = pathlib.Path(sys.argv[1])
    parts = [(name, float(wall), float(user) + float(system))
             for name, wall, user, system in read_tsv(folder / "parts.tsv")]
    warm = cache_was_warm(folder / "ccache.log")
    column = 0 if warm else 1

    rows = []
    for name, seconds, processor in parts:
        rows.append([name, f"{seconds:.0f}", f"{processor:.0f}", str(BUDGET[name][column]) if name in BUDGET else "-"])
        log = {"build": "ci", "sanitizers: build": "asan", "classroom": "classroom"}.get(name)
        steps = ninja_steps(folder.parent / log / ".ninja_log") if log else {}
        whole = sum(steps.values())
        for kind, taken in sorted(steps.items(), key=lambda item: -item[1]):
            if taken / whole > 0.005:
                rows.append([f"  {kind}", f"{seconds * taken / whole:.0f}", "", ""])
        tests = {"tests": "ci", "sanitizers: tests": "asan"}.get(name)
        if tests:
            groups = collections.defaultdict(lambda: [0, 0.0, 0.0])
            labels = labels_of(folder / f"labels_{tests}.json")
            for test, wall, user, system in read_tsv(folder / f"tests_{tests}.tsv"):
                group = groups[labels.get(test, "other")]
                group[0] += 1
                group[1] += float(wall)
                group[2] += float(user) + float(system)
            for label, (count, wall, used) in sorted(groups.items(), key=lambda item: -item[1][1]):
                rows.append([f"  {label}, {count} tests (one after another)", f"{wall:.0f}", f"{used:.0f}", ""])
    total = sum(seconds for _, seconds, _ in parts)
    limit = sum(seconds[column] for seconds in BUDGET.values())
    rows.append(["in all", f"{total:.0f}", f"{sum(processor for *_, processor in parts):.0f}", str(limit)])
    print(f"ci: where the time went ({os.cpu_count()} cores, compiler's cache {'warm' if warm else 'cold'})")
    show(rows, ["part", "seconds", "processor s", "budget"])

    for tests, name in (("ci", "tests"), ("asan", "tests under sanitizers")):
        slowest = sorted(read_tsv(folder / f"tests_{tests}.tsv"), key=lambda row: -float(row[1]))[:10]
        if slowest:
            print(f"ci: the ten slowest {name}")
            show([[test, f"{float(wall):.1f}", f"{float(user) + float(system):.1f}"]
                  for test, wall, user, system in slowest], ["test", "seconds", "processor s"])

    if total > limit:
        name, over = max(((name, seconds - BUDGET.get(name, (0, 0))[column]) for name, seconds, _ in parts),
                         key=lambda item: item[1])
        print(f"ci: warning: {total:.0f} s, where {limit} s are the budget; most over its own is "
              f"'{name}', by {over:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
