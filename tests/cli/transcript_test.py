#!/usr/bin/env python3
"""Commands of a page with what they print: transcript_test.py MESHPLAN PAGE EXAMPLES

Runs every "$ meshplan ..." of the page's indented blocks in a folder with the examples; the lines
shown below it must come out in that order. "..." stands for any number of lines.
"""
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def steps(page):
    """(command, lines shown) of the page, in order."""
    found = []
    for line in page.read_text().splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif line.startswith("    ") and found:
            found[-1][1].append(line[4:].rstrip())
        elif line.strip() and found:
            found.append(("", []))  # text ends what belongs to a command
    return [step for step in found if step[0]]


def first_missing(shown, printed):
    """The first line shown that does not follow those before it."""
    rest = iter(printed)
    for line in shown:
        if line not in ("", "...") and line not in rest:
            return line
    return None


def main():
    meshplan, page, examples = (Path(argument).resolve() for argument in sys.argv[1:])
    failures, count = [], 0
    with tempfile.TemporaryDirectory() as work:
        for example in examples.iterdir():
            shutil.copy(example, work)
        for command, shown in steps(page):
            words = shlex.split(command)
            if words[0] != "meshplan":
                sys.exit(f"{page.name}: {command}: only meshplan is run")
            run = subprocess.run([meshplan, *words[1:]], cwd=work, capture_output=True, text=True,
                                 timeout=120)
            printed = [line.rstrip() for line in (run.stdout + run.stderr).splitlines()]
            count += 1
            missing = first_missing(shown, printed)
            if missing is not None:
                failures.append(f"$ {command}\nlacks: {missing}\nin:\n" + "\n".join(printed))
    print("\n\n".join(failures) or f"{count} commands")
    sys.exit(1 if failures or count == 0 else 0)


if __name__ == "__main__":
    main()
