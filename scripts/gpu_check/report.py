#!/usr/bin/env python3
"""Turns the archives of scripts/gpu_check.sh into a result page:

    scripts/gpu_check/report.py OUT/gpu_check_*.tar.gz >reports/results/gpu_YYYYMM.md

Date, hardware and versions come from the archives; so do all figures. Ends with 2 where one cannot be read.
"""
import sys
import tarfile

ORDER = ["build", "quick", "rest", "second"]
# Logs that a page shows in full: what they print is the result.
SHOWN = ["attention_check", "families", "bf16_beside_torch", "gemm_bench", "grouped_gemm_bench", "memory_bench", "slowest_kernels", "plan", "trial",
         "compare"]


class Run:
    """The archive of one run of gpu_check.sh: its folder's text files by their path below it."""

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
        return Run(path)
    except (OSError, tarfile.TarError, ValueError) as error:
        print(f"{path}: cannot be read: {error}", file=sys.stderr)
        sys.exit(2)


def table(head, rows):
    cells = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


def machine(runs):
    """What runs agree on once, what they do not with all of its values: runs of several days or commits."""
    facts = {}
    for run in runs:
        for name, value in run.rows("machine.tsv"):
            facts.setdefault(name, {})[value] = None
    return facts


def header(facts, runs):
    """The row that scripts/results_index.py reads; the date is the last run's."""
    def words(*names):
        return ", ".join(f"{name} {'; '.join(facts[name])}" if name in ("commit", "nvcc") else "; ".join(facts[name])
                         for name in names if name in facts) or "unknown"
    date = max(facts.get("date", {"1970-01-01": None}))
    return table(["date", "hardware", "software", "command"],
                 [[date, words("GPU", "CPU"), words("commit", "system", "compiler", "nvcc"), f"`scripts/gpu_check.sh {'|'.join(run.name for run in runs)}`"]])


def speed(run):
    """Tokens/s, MFU, measured over predicted step time, and our rate over the best of PyTorch's of the same model. A row of
    PyTorch's has no MFU of its own: it is ours by the ratio of rates."""
    rows = run.rows("speed.tsv")
    rates = {(row[0], row[1]): float(row[2]) for row in rows}
    ours = {row[0]: (float(row[2]), float(row[3])) for row in rows if len(row) > 3}
    best = {}
    for (model, program), rate in rates.items():
        if program.startswith("PyTorch"):
            best[model] = max(best.get(model, 0), rate)
    cells = []
    for row in rows:
        model, program, rate = row[0], row[1], float(row[2])
        mfu = float(row[3]) if len(row) > 3 else rate / ours[model][0] * ours[model][1] if model in ours else None
        cells.append([model, program, f"{rate:,.0f}", f"{100 * mfu:.1f} %" if mfu is not None else "",
                      row[4] if len(row) > 4 else "",
                      f"{rate / best[model]:.2f}" if program.startswith("meshplan") and model in best else ""])
    return table(["model", "program", "tokens/s", "MFU", "measured over predicted", "of PyTorch's best"], cells)


def section(run):
    rows = run.rows("steps.tsv")
    count = {result: sum(row[1] == result for row in rows) for result in ("passed", "skipped", "FAILED")}
    parts = [f"## {run.name}: " + ", ".join(f"{number} {result}" for result, number in count.items() if number),
             table(["group", "step", "result", "s", "last line"], [[row[4], *row[:4]] for row in rows])]
    if run.rows("speed.tsv"):
        parts.append(speed(run))
    for name in SHOWN:
        log = run.files.get(f"{name}.log", "").rstrip()
        if log:
            parts.append(f"{name}:\n\n```text\n{log}\n```")
    return "\n\n".join(parts)


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    runs = sorted(map(read, sys.argv[1:]), key=lambda run: ORDER.index(run.name))
    facts = machine(runs)
    print("# meshplan on a GPU\n", header(facts, runs), "", sep="\n")
    print("\n".join(f"- {name}: {'; '.join(values)}" for name, values in facts.items()))
    for run in runs:
        print("\n" + section(run))
    return 0


if __name__ == "__main__":
    sys.exit(main())
