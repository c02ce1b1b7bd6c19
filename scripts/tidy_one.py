#!/usr/bin/env python3
"""Checks one source with clang-tidy, unless the same text passed before.

    scripts/tidy_one.py CLANG_TIDY BUILD FILE [clang-tidy's options...]

What passed is remembered in ${XDG_CACHE_HOME:-~/.cache}/meshplan/tidy by a hash of the source, the headers that it
includes, .clang-tidy, the options and clang-tidy's version. Exit code: clang-tidy's.
"""
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys


def included(entry):
    """The source of a compile command and every header it includes."""
    command = shlex.split(entry["command"])
    if "-o" in command:
        del command[command.index("-o"):command.index("-o") + 2]
    made = subprocess.run([*command, "-M"], cwd=entry["directory"], check=True, capture_output=True, text=True).stdout
    names = shlex.split(made.replace("\\\n", " ").split(":", 1)[1])
    return sorted(os.path.join(entry["directory"], name) for name in names)


def main():
    tidy, build, name, *options = sys.argv[1:]
    version = subprocess.run([tidy, "--version"], check=True, capture_output=True).stdout
    commands = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    entry = next(one for one in commands if os.path.realpath(one["file"]) == os.path.realpath(name))
    digest = hashlib.sha256(version + shlex.join(options).encode())
    digest.update(entry["command"].replace(os.getcwd(), "").encode())
    for path in [*included(entry), ".clang-tidy"]:
        digest.update(pathlib.Path(path).read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    passed = pathlib.Path(home) / "meshplan" / "tidy" / digest.hexdigest()
    if passed.exists():
        return 0
    status = subprocess.run([tidy, "-p", build, "--quiet", *options, name]).returncode
    if status == 0:
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
    return status


if __name__ == "__main__":
    sys.exit(main())
