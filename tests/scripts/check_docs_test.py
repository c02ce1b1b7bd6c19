#!/usr/bin/env python3
"""Plants faults in small documents: scripts/check_docs.py must name each, and mend what moved."""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "scripts/check_docs.py"

GOOD = {
    "README.md": "# A\n\nWhat it is.\n\n| a | b |\n| --- | --- |\n| `x \\| y` | [page](docs/page.md#one-two) |\n",
    "docs/README.md": "# Index\n\nAll pages: [page](page.md).\n",
    "docs/page.md": "# Page\n\nA page about `sim/src/a.cpp`, `b.hpp`, `sim/b.hpp`, `sim/src/{a,c}.cpp`, `sim/src/*`, "
                    "`a_test` and the test\n`sim/all`.\n\n## One, two\n\n    | a picture\n",
    "sim/src/a.cpp": "// docs/page.md#one-two\n",
    "sim/src/c.cpp": "",
    "sim/include/sim/b.hpp": "",
    "tests/sim/a_test.cpp": "",
    "tests/CMakeLists.txt": "add_test(NAME sim/all COMMAND test_sim)\n",
}

# What is appended to a file, and what the check must say of it.
FAULTS = [
    ("docs/page.md", "\n| a | b |\n| --- | --- |\n| 1 | 2 | 3 |\n", "a row of 3 cells under a header of 2"),
    ("docs/page.md", "\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n| 3 | 4 |\n", "a row outside of a table"),
    ("docs/page.md", "\n[gone](gone.md)\n", "the link gone.md leads nowhere"),
    ("docs/page.md", "\n[here](../README.md#three)\n", "README.md has no heading for #three"),
    ("docs/page.md", "\n`sim/src/gone.cpp`\n", "there is no sim/src/gone.cpp"),
    ("docs/page.md", "\n`gone.cpp`\n", "there is no gone.cpp"),
    ("docs/page.md", "\n`sim/src/{a,gone}.cpp`\n", "there is no sim/src/gone.cpp"),
    ("docs/page.md", "\n`gone_test`\n", "there is no test gone_test"),
    ("docs/page.md", "\n    tests/gone.sh 3\n", "there is no tests/gone.sh"),
    ("docs/new.md", "# New\n\nA page.\n", "does not link docs/new.md"),
    ("docs/new.md", "# New\n\n| a |\n| --- |\n", "a page begins with a paragraph"),
    ("sim/src/a.cpp", "// docs/gone.md\n", "sim/src/a.cpp:2: there is no docs/gone.md"),
    ("sim/src/a.cpp", "// docs/page.md#three\n", "docs/page.md has no heading for #three"),
]


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def check(root, *options):
    done = subprocess.run([sys.executable, CHECK, "--root", root, *options], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def git(root, *arguments):
    subprocess.run(["git", *arguments], cwd=root, check=True)


def expect(what, holds, output):
    if not holds:
        sys.exit(f"{what}; the check said:\n{output}")


def check_renames():
    """--since COMMIT, which asks git."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, GOOD | {"sim/include/sim/b.hpp": "struct B {};  // long enough to be known again\n" * 3})
        git(root, "init", "--quiet")
        git(root, "add", ".")
        git(root, "-c", "user.name=test", "-c", "user.email=test@example.org", "commit", "--quiet", "--message", "then")
        git(root, "mv", "sim/include/sim/b.hpp", "sim/include/sim/better.hpp")
        code, output = check(folder, "--mend", "--since", "HEAD")
        page = (root / "docs/page.md").read_text()
        expect("a name follows a renamed file", "`better.hpp`" in page and code == 0, output)


def main():
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), GOOD)
        code, output = check(folder)
        expect("documents without a fault pass", code == 0, output)
    for name, text, words in FAULTS:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), GOOD | {name: GOOD.get(name, "") + text})
            code, output = check(folder)
            expect(f"{name} with {text!r} is told: {words}", code == 1 and words in output, output)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, GOOD | {"docs/README.md": GOOD["docs/README.md"] + "\n[c](../sim/src/c.cpp#L1)\n"})
        (root / "sim/src/room").mkdir()
        for name in ("a.cpp", "c.cpp"):
            (root / "sim/src" / name).rename(root / "sim/src/room" / name)
        code, output = check(folder, "--mend")
        index, page = (root / "docs/README.md").read_text(), (root / "docs/page.md").read_text()
        expect("a link follows its file", "(../sim/src/room/c.cpp#L1)" in index, output)
        expect("a path follows its file", "`sim/src/room/a.cpp`" in page, output)
        expect("several paths in one follow their files", "`sim/src/room/{a,c}.cpp`" in page, output)
        expect("what was mended passes", code == 0, output)
    if shutil.which("git"):
        check_renames()
    else:
        print("not tried: --since, for want of git")
    print(f"{len(FAULTS)} planted faults were told")


if __name__ == "__main__":
    main()
