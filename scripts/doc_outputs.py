#!/usr/bin/env python3
"""What commands print stands in docs as they print it: doc_outputs.py MESHPLAN PAGE... [--examples DIR] [--update]

A page's commands run one after another in a folder of their own, which begins with the files of DIR. There are two kinds:

- "$ meshplan ..." in an indented block, with lines below it, which must come out in that order; "..." stands for any
  number of lines.
- A comment before a fenced block, which must hold exactly what the command prints, or the lines from the first that
  contains one text to the next that contains another:

      <!-- $ meshplan explain best.json | first from the model's FLOPs | last step time -->

  Without a block behind it the command only makes what later ones read.

--update writes marked blocks anew, and puts what is printed most like it in place of a line that is not printed.

Exit code 1 where a page shows anything else.
"""
import argparse
import difflib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MARKER = re.compile(r"^<!-- \$ (?P<command>.*?)(?: \| first (?P<first>.*?))?(?: \| last (?P<last>.*?))? -->$")


class Folder:
    """Where the commands of one page run."""

    def __init__(self, meshplan, page, path):
        self.meshplan, self.page, self.path = meshplan, page, path

    def printed(self, command, errors=False):
        words = shlex.split(command)
        if words[0] != "meshplan":
            sys.exit(f"{self.page}: {command}: only meshplan is run")
        run = subprocess.run([self.meshplan, *words[1:]], cwd=self.path, capture_output=True, text=True, timeout=120)
        return [line.rstrip() for line in (run.stdout + (run.stderr if errors else "")).splitlines()]


def difference(shown, printed):
    return "\n".join(difflib.unified_diff(shown, printed, "shown", "printed", lineterm=""))


def part(lines, first, last):
    """The lines from the one that contains `first` to the next that contains `last`; or nothing."""
    begin = next((i for i, line in enumerate(lines) if first is None or first in line), None)
    if begin is None:
        return None
    if last is None:
        return lines[begin:]
    end = next((i for i in range(begin, len(lines)) if last in lines[i]), None)
    return None if end is None else lines[begin:end + 1]


def as_printed(shown, printed):
    """The lines shown, and in place of those that do not follow the ones before them what is most like them."""
    lines, begin = [], 0
    for line in shown:
        if line in ("", "..."):
            lines.append(line)
            continue
        rest = printed[begin:]
        alike = [line] if line in rest else difflib.get_close_matches(line, rest, n=1, cutoff=0.5)
        if alike:
            begin += rest.index(alike[0]) + 1
        lines.append(alike[0] if alike else line)
    return lines


def check_page(folder, lines, faults):
    """@returns the page's lines with its marked blocks as they should be, and how many commands it has"""
    result, count, i = [], 0, 0
    while i < len(lines):
        line = lines[i]
        result.append(line)
        i += 1
        marker = MARKER.match(line)
        if marker:
            count += 1
            printed = folder.printed(marker["command"])
            if i == len(lines) or not lines[i].startswith("```"):
                continue
            end = lines.index("```", i + 1)
            wanted = part(printed, marker["first"], marker["last"])
            if wanted is None:
                faults.append(f"$ {marker['command']}\nprints no such lines:\n" + "\n".join(printed))
                wanted = lines[i + 1:end]
            elif wanted != lines[i + 1:end]:
                faults.append(f"$ {marker['command']}\n" + difference(lines[i + 1:end], wanted))
            result += [lines[i], *wanted, "```"]
            i = end + 1
        elif line.startswith("    $ "):
            count += 1
            shown = []
            while i < len(lines) and (not lines[i].strip() or lines[i].startswith("    ")):
                if lines[i].startswith("    $ "):
                    break
                shown.append(lines[i][4:].rstrip())
                i += 1
            printed = folder.printed(line[6:], errors=True)
            wanted = as_printed(shown, printed)
            missing = [line for line in wanted if line not in ("", "...") and line not in printed]
            result += ["    " + line if line else "" for line in wanted]
            if missing or wanted != shown:
                faults.append(f"$ {line[6:]}\n" + difference(shown, wanted) +
                              "".join(f"\nlacks: {line}" for line in missing) + "\nin:\n" + "\n".join(printed))
    return result, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("meshplan", type=Path)
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--examples", type=Path)
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    faulty = False
    for page in given.pages:
        faults = []
        text = page.read_text()
        with tempfile.TemporaryDirectory() as work:
            for example in given.examples.iterdir() if given.examples else []:
                shutil.copy(example, work)
            lines, count = check_page(Folder(given.meshplan.resolve(), page, work), text.splitlines(), faults)
        if count == 0:
            faults.append("has no command")
        if given.update:
            page.write_text("\n".join(lines) + "\n")
        print(f"{page}: {count} commands" + (f", {len(faults)} of them print something else" if faults else ""))
        print("\n\n".join(faults))
        faulty = faulty or bool(faults)
    sys.exit(1 if faulty else 0)


if __name__ == "__main__":
    main()
