#!/usr/bin/env python3
"""Plants the bugs of tests/mutants.json in the sources, one at a time, and fails if a test misses one.

  scripts/mutants.py [NAME|AREA...]      default: all mutants
  scripts/mutants.py --list              prints them
  scripts/mutants.py --tree FOLDER       mutates this checkout, say one with tests that are not committed yet
  scripts/mutants.py --table FILE        also writes which test catches which, as Markdown (tests/mutants.md)
  scripts/mutants.py --keep              leaves the checkout that it made
  scripts/mutants.py --jobs N            processes of the compiler at a time (2)

Works in a git worktree of HEAD in a temporary folder (TMPDIR), built like preset ci but without CUDA, Python and
benches, and with the files that mutants change compiled alone, so that a mutant's build is short. Each mutant is a
source file, an `old` text that it holds exactly once, the `new` text, the targets to build, and the `test` of ctest
that must fail. `only` narrows a Catch program down to a few of its tests. Tests run as ctest runs them (command,
environment and time limit), and first without any mutant.

Exit code 1 if a mutant survives; 2 if one is invalid: its text is not found once, it does not compile, its test is not
one of plain ctest, or fails without it.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "mutants.json"
PRESET = "ci"
OPTIONS = ["-DMESHPLAN_CUDA=OFF", "-DMESHPLAN_PYTHON=OFF", "-DMESHPLAN_BENCH=OFF"]
NO_HIDDEN = "~[.]"  # Catch tests that plain ctest does not run
DEFAULT_TIMEOUT = 1500  # ctest's
CATCH_RULE = "-" * 79

Mutant = collections.namedtuple("Mutant", "name area file old new build test only")
Run = collections.namedtuple("Run", "passed verdict seconds output")


class Invalid(Exception):
    """A mutant, or the checkout, is not as it must be."""


def load_mutants(path):
    """Reads the data file. `only` is optional, all else is required."""
    mutants = []
    for entry in json.loads(path.read_text()):
        missing = set(Mutant._fields) - {"only"} - set(entry)
        unknown = set(entry) - set(Mutant._fields)
        if missing or unknown:
            name = entry.get("name", entry)
            raise Invalid(f"{path.name}: {name}: missing {sorted(missing)}, unknown {sorted(unknown)}")
        entry = {"only": "", **entry}
        # Texts of several lines are lists of lines.
        for key in ("old", "new"):
            if isinstance(entry[key], list):
                entry[key] = "\n".join(entry[key])
        mutants.append(Mutant(**entry))
    names = collections.Counter(mutant.name for mutant in mutants)
    repeated = sorted(name for name, count in names.items() if count > 1)
    if repeated:
        raise Invalid(f"{path.name}: more than one mutant is called {', '.join(repeated)}")
    return mutants


def choose(mutants, wanted):
    """Mutants of the given names and areas, in the file's order."""
    known = {mutant.name for mutant in mutants} | {mutant.area for mutant in mutants}
    unknown = sorted(set(wanted) - known)
    if unknown:
        raise Invalid(f"no mutant or area is called {', '.join(unknown)}; --list prints all")
    return [mutant for mutant in mutants if not wanted or mutant.name in wanted or mutant.area in wanted]


def mutated(mutant, text):
    """The file's text with the bug."""
    count = text.count(mutant.old)
    if count != 1:
        raise Invalid(f"{mutant.name}: its old text is {count} times in {mutant.file}, not once")
    if mutant.old == mutant.new:
        raise Invalid(f"{mutant.name}: changes nothing")
    return text.replace(mutant.old, mutant.new)


class Checkout:
    """A tree of sources with its build folder and the tests that plain ctest runs there."""

    def __init__(self, tree, jobs):
        self.tree = tree
        self.jobs = jobs
        self.build_folder = tree / "build" / PRESET
        self.tests = {}

    def configure(self, changing):
        """Files that change are compiled alone: the build of a mutant compiles nothing else."""
        alone = "-DMESHPLAN_COMPILED_ALONE=" + ";".join(sorted(changing))
        self._call(["cmake", "--preset", PRESET, *OPTIONS, alone], self.tree, "cannot configure")

    def build(self, targets):
        self._call(["ninja", f"-j{self.jobs}", *targets], self.build_folder, f"cannot build {' '.join(targets)}")

    def read_tests(self):
        """Asks ctest, whose answer names the programs only once they are built."""
        shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=self.build_folder, check=True, capture_output=True)
        self.tests = {test["name"]: test for test in json.loads(shown.stdout)["tests"]}

    def run(self, name, only):
        """Runs a test as ctest does; `only` selects some of a Catch program's tests, of those that ctest runs."""
        if name not in self.tests:
            raise Invalid(f"no test of plain ctest is called {name}")
        test = self.tests[name]
        command = list(test.get("command", []))
        if not command:
            raise Invalid(f"{name}: its program is not built")
        properties = {each["name"]: each["value"] for each in test.get("properties", [])}
        environment = dict(os.environ)
        environment.update(each.split("=", 1) for each in properties.get("ENVIRONMENT", []))
        if only:
            parts = only.split(",")
            if "--filenames-as-tags" in command:
                files = command.pop()
                elsewhere = [part for part in parts if part not in files]
                if elsewhere:
                    raise Invalid(f"{name} does not run {', '.join(elsewhere)}")
            command.append(",".join(part + NO_HIDDEN for part in parts))
        return run_test(command, properties.get("WORKING_DIRECTORY", self.build_folder), environment,
                        float(properties.get("TIMEOUT", DEFAULT_TIMEOUT)))

    @staticmethod
    def _call(command, folder, error):
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode != 0:
            lines = done.stdout.splitlines()
            errors = [line for line in lines if "error" in line.lower() or "FAILED" in line]
            raise Invalid(f"{error}:\n" + "\n".join((errors or lines)[-12:]))


def run_test(command, folder, environment, timeout):
    """Runs a command in a process group of its own, all of which ends with it."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(process)
        output.seek(0)
        text = output.read()
    seconds = time.monotonic() - start
    if status is None:
        return Run(False, f"its time limit of {timeout:.0f} s", seconds, text)
    if status in (126, 127):
        raise Invalid(f"cannot run {command[0]}:\n{text[-500:]}")
    if status == 0 and re.search(r"No tests? (cases matched|ran)", text):
        raise Invalid(f"{' '.join(command[1:])} selects no test")
    return Run(status == 0, "" if status == 0 else verdict(text, status), seconds, text)


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def verdict(text, status):
    """Names of the Catch test cases that failed; else the first failure that a script named; else its last line."""
    lines = text.splitlines()
    names = []
    for i, line in enumerate(lines):
        if line != CATCH_RULE:
            continue
        name = []
        # A long name goes on in the next lines; what is indented is a section of the test.
        for more in lines[i + 1:i + 8]:
            if more == CATCH_RULE or more.startswith("  "):
                break
            name.append(more)
        title = " ".join(name)
        if title and "." * 79 not in title and title not in names:
            names.append(title)
    if names:
        return " | ".join(names)
    failures = [line.strip() for line in lines if line.startswith("FAILED:")]  # of our shell scripts
    if failures:
        return failures[0]
    said = [line.strip() for line in lines if line.strip()]
    how = f"exit code {status}" if status > 0 else f"signal {-status}"
    return said[-1] if said else how


def make_worktree(folder):
    tree = folder / "tree"
    subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(tree), "HEAD"], check=True)
    return tree


def remove_worktree(tree):
    subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)], check=False)
    shutil.rmtree(tree.parent, ignore_errors=True)


def run_unmutated(checkout, mutants):
    """All tests must pass before there is a bug."""
    for test, only in dict.fromkeys((mutant.test, mutant.only) for mutant in mutants):
        run = checkout.run(test, only)
        say(f"unmutated: {test} {only}: {'passed' if run.passed else 'FAILED'}, {run.seconds:.1f} s")
        if not run.passed:
            raise Invalid(f"{test} {only} fails without a mutant: {run.verdict}\n{run.output[-1500:]}")


def run_mutant(checkout, mutant):
    """Builds and tests with the bug; the file is as before afterwards."""
    path = checkout.tree / mutant.file
    original = path.read_text()
    try:
        path.write_text(mutated(mutant, original))
        checkout.build(mutant.build)
        return checkout.run(mutant.test, mutant.only)
    finally:
        path.write_text(original)


def say(line):
    print(line, flush=True)


def fate_of(result):
    if isinstance(result, Invalid):
        return f"INVALID: {result}"
    return "SURVIVES" if result.passed else f"caught by {result.verdict}"


def print_table(results):
    """The results once more, side by side."""
    rows = [("area", "mutant", "seconds", "test")]
    for mutant, result in results:
        seconds = "" if isinstance(result, Invalid) else f"{result.seconds:.1f}"
        rows.append((mutant.area, mutant.name, seconds, f"{mutant.test}: {fate_of(result).splitlines()[0]}"))
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    for area, name, seconds, fate in rows:
        say(f"{area:{widths[0]}}  {name:{widths[1]}}  {seconds:>7}  {fate}")


def write_table(results, path):
    """Which test catches which mutant, as Markdown."""
    lines = ["# Planted bugs, and what catches them", "",
             "`scripts/mutants.py --table tests/mutants.md` plants each bug of [mutants.json](mutants.json), runs its test "
             "and writes this table.", "",
             "| area | bug | file | test | caught by |", "|---|---|---|---|---|"]
    for mutant, result in results:
        fate = str(result) if isinstance(result, Invalid) else result.verdict or "**nothing**"
        fate = fate.splitlines()[0].replace("|", ";")
        lines.append(f"| {mutant.area} | {mutant.name} | `{mutant.file}` | {mutant.test} | {fate} |")
    path.write_text("\n".join(lines) + "\n")


def run_all(checkout, mutants, table):
    """@returns the exit code"""
    for mutant in mutants:
        mutated(mutant, (checkout.tree / mutant.file).read_text())
    start = time.monotonic()
    checkout.configure({mutant.file for mutant in mutants})
    checkout.build(sorted({target for mutant in mutants for target in mutant.build}))
    checkout.read_tests()
    say(f"built in {time.monotonic() - start:.0f} s")
    run_unmutated(checkout, mutants)
    results = []
    for number, mutant in enumerate(mutants, 1):
        start = time.monotonic()
        try:
            result = run_mutant(checkout, mutant)
        except Invalid as error:
            result = error
        results.append((mutant, result))
        seconds = time.monotonic() - start
        say(f"{number}/{len(mutants)} {mutant.name}: {fate_of(result)} ({seconds:.0f} s with its build)")
    print_table(results)
    if table:
        write_table(results, table)
    invalid = [mutant.name for mutant, result in results if isinstance(result, Invalid)]
    survivors = [mutant.name for mutant, result in results if fate_of(result) == "SURVIVES"]
    for names, fate in ((survivors, "survive"), (invalid, "are invalid")):
        say(f"of {len(results)} mutants {len(names)} {fate}{': ' if names else ''}{', '.join(names)}")
    return 2 if invalid else 1 if survivors else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", nargs="*", metavar="NAME|AREA")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--tree", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # files are restored
    try:
        mutants = choose(load_mutants(DATA), options.wanted)
        if options.list:
            for mutant in mutants:
                say(f"{mutant.area:12} {mutant.name:40} {mutant.file}")
            return 0
        if options.tree:
            tree = options.tree.resolve()
            if tree == ROOT:
                raise Invalid("mutants do not belong into the checkout that you work in; give another one")
            return run_all(Checkout(tree, options.jobs), mutants, options.table)
        tree = make_worktree(pathlib.Path(tempfile.mkdtemp(prefix="meshplan-mutants-")))
        try:
            return run_all(Checkout(tree, options.jobs), mutants, options.table)
        finally:
            if options.keep:
                say(f"kept: {tree}; remove it by: git worktree remove --force {tree}")
            else:
                remove_worktree(tree)
    except Invalid as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
