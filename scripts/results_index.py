#!/usr/bin/env python3
"""Writes reports/results/README.md: every measured result of the repository in one table.

    scripts/results_index.py            # writes it
    scripts/results_index.py --check    # exit code 1 if it is not what would be written

A result is a page below reports/results/. It begins with its title and a table of one row: date, hardware,
software, command. A page without it is named, and nothing is written.
"""
import argparse
import datetime
import re
import sys
from pathlib import Path

COLUMNS = ["date", "hardware", "software", "command"]
HEAD = """# Measured results

Every figure in this folder was printed by the command beside it. Made by `scripts/results_index.py` from the pages' own headers; newest first.

"""


def cells_of(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def read(page, root):
    """@returns (title, link, the header's cells); @throws ValueError naming what is wrong."""
    lines = [line for line in page.read_text().splitlines() if line.strip()]
    where = page.relative_to(root.parent.parent)
    if not lines or not lines[0].startswith("# "):
        raise ValueError(f"{where}: begins with no title ('# ...')")
    if len(lines) < 4 or cells_of(lines[1]) != COLUMNS:
        raise ValueError(f"{where}: the title is not followed by a table | {' | '.join(COLUMNS)} |")
    cells = cells_of(lines[3])
    if len(cells) != len(COLUMNS) or not all(cells):
        raise ValueError(f"{where}: the table's row has {len(cells)} cells that should be {len(COLUMNS)}, none of them empty")
    try:
        datetime.date.fromisoformat(cells[0])
    except ValueError:
        raise ValueError(f"{where}: date '{cells[0]}' is not YYYY-MM-DD") from None
    return lines[0][2:], page.relative_to(root).as_posix(), cells


def index_of(results):
    rows = ["| result | date | hardware | software | command |", "| --- | --- | --- | --- | --- |"]
    for title, link, cells in sorted(results, key=lambda result: (result[2][0], result[0]), reverse=True):
        rows.append("| " + " | ".join([f"[{title}]({link})", *cells]) + " |")
    return HEAD + "\n".join(rows) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the index is not up to date")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="of the repository")
    arguments = parser.parse_args()
    root = arguments.root / "reports" / "results"
    index = root / "README.md"
    faults, results = [], []
    for page in sorted(root.rglob("*.md")):
        if page == index:
            continue
        try:
            results.append(read(page, root))
        except ValueError as fault:
            faults.append(str(fault))
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 1
    wanted = index_of(results)
    if not arguments.check:
        index.write_text(wanted)
    elif not index.exists() or index.read_text() != wanted:
        print("reports/results/README.md is not up to date; run scripts/results_index.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
