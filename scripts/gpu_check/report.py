#!/usr/bin/env python3
"""Turns the archives of scripts/gpu_check.sh into a result page:

    scripts/gpu_check/report.py OUT/gpu_check_*.tar.gz >reports/results/gpu_YYYYMM.md

Date, hardware and versions come from the archives; so do all figures. Ends with 2 where one cannot be read.
"""
import sys
import tarfile

ORDER = ["build", "smoke", "kernels", "parity", "speed", "loop"]
# Logs that a page shows in full: what they print is the result.
SHOWN = {"kernels": ["attention_bench", "gemm_bench", "memory_bench"], "loop": ["plan", "run", "compare"]}


class Stage:
    """One archive: its folder's text files by their path below it."""

    def __init__(self, path):
        self.files = {}
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                self.name, _, inside = member.name.partition("/")
                if member.isfile() and inside.endswith((".tsv", ".log", ".md")):
                    self.files[inside] = archive.extractfile(member).read().decode(errors="replace")
        if "steps.tsv" not in self.files:
            raise ValueError("no steps.tsv in it: not an archive of gpu_check.sh")

    def rows(self, file):
        return [line.split("\t") for line in self.files.get(file, "").splitlines()]


def read(path):
    try:
        return Stage(path)
    except (OSError, tarfile.TarError, ValueError) as error:
        print(f"{path}: cannot be read: {error}", file=sys.stderr)
        sys.exit(2)


def table(head, rows):
    cells = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


def machine(stages):
    """What stages agree on once, what they do not with all of its values: runs of several days or commits."""
    facts = {}
    for stage in stages:
        for name, value in stage.rows("machine.tsv"):
            facts.setdefault(name, {})[value] = None
    return facts


def header(facts):
    """The row that scripts/results_index.py reads; the date is the last stage's."""
    def words(*names):
        return ", ".join(f"{name} {'; '.join(facts[name])}" if name in ("commit", "nvcc") else "; ".join(facts[name])
                         for name in names if name in facts) or "unknown"
    date = max(facts.get("date", {"1970-01-01": None}))
    return table(["date", "hardware", "software", "command"],
                 [[date, words("GPU", "CPU"), words("commit", "system", "compiler", "nvcc"), "`scripts/gpu_check.sh all`"]])


def speed(stage):
    """Tokens/s, and our rate over PyTorch's of the same model."""
    rates = {(model, program): float(rate) for model, program, rate in stage.rows("speed.tsv")}
    theirs = {model: rate for (model, program), rate in rates.items() if program != "meshplan"}
    return table(["model", "program", "tokens/s", "of PyTorch's"],
                 [[model, program, f"{rate:,.0f}",
                   f"{rate / theirs[model]:.2f}" if program == "meshplan" and model in theirs else ""]
                  for (model, program), rate in rates.items()])


def section(stage):
    failed = sum(row[1] == "FAILED" for row in stage.rows("steps.tsv"))
    parts = [f"## {stage.name}: {f'{failed} FAILED' if failed else 'nothing failed'}",
             table(["step", "result", "s", "last line"], stage.rows("steps.tsv"))]
    if stage.rows("speed.tsv"):
        parts.append(speed(stage))
    for name in SHOWN.get(stage.name, []):
        log = stage.files.get(f"{name}.log", "").rstrip()
        if log:
            parts.append(f"{name}:\n\n```text\n{log}\n```")
    return "\n\n".join(parts)


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    stages = sorted(map(read, sys.argv[1:]), key=lambda stage: ORDER.index(stage.name))
    facts = machine(stages)
    print("# meshplan on a GPU\n", header(facts), "", sep="\n")
    print("\n".join(f"- {name}: {'; '.join(values)}" for name, values in facts.items()))
    for stage in stages:
        print("\n" + section(stage))
    return 0


if __name__ == "__main__":
    sys.exit(main())
