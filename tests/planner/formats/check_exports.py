#!/usr/bin/env python3
"""Looks at the exported folders of golden/ as their targets would: Python compiles, YAML, JSON, shell and
schedules are read, and every setting is one that the target has (known/, written down from its source).

    tests/planner/formats/check_exports.py [FOLDER]
"""
import ast
import json
import py_compile
import re
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import yaml
except ImportError:  # the C++ tests read YAML with yaml-cpp
    yaml = None

HERE = Path(__file__).resolve().parent
CELL = re.compile(r"\d+[FBIW]\d+|\(\d+F\d+;\d+B\d+\)OVERLAP_F_B")


def known(name):
    lines = (HERE / "known" / f"{name}.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def keys_of(value, path=""):
    """Paths of all values, without the numbers of list items."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from keys_of(child, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for child in value:
            yield from keys_of(child, path)
    else:
        yield path


def check_keys(value, settings, open_paths=()):
    for path in keys_of(value):
        if path not in settings and not path.startswith(tuple(open_paths)):
            yield f"{path} is no setting of the target"


def dotted(node):
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def check_python(path):
    with tempfile.NamedTemporaryFile(suffix=".pyc") as compiled:
        py_compile.compile(str(path), cfile=compiled.name, doraise=True)
    settings = known("torchtitan")
    names = {line.split()[1]: line.split()[0] for line in settings if line.count(" ") > 0}
    tree = ast.parse(path.read_text())
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules.update({alias.name: node.module for alias in node.names})
    for name, module in modules.items():
        if module.startswith("torchtitan") and not any(
                line.startswith((f"{module} {name} ", f"{module} {name}.")) or line == f"{module} {name}"
                for line in settings):
            yield f"{module} has no {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) in names:
            callee = dotted(node.func)
            module = modules[callee.split(".")[0]]
            for keyword in node.keywords:
                if f"{module} {callee} {keyword.arg}" not in settings:
                    yield f"line {node.lineno}: {callee} has no argument {keyword.arg}"


def check_yaml(path):
    if yaml is None:
        return
    value = yaml.safe_load(path.read_text())
    if path.name == "nanotron.yaml":
        yield from check_keys(value, known("nanotron"))
        rate = value["optimizer"]["learning_rate_scheduler"]["min_decay_lr"]
        if not isinstance(rate, float):
            yield f"min_decay_lr is {rate!r}: PyYAML takes it for a text"
    else:
        yield from check_keys(value, known("accelerate"))


def check_shell(path):
    run = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    if run.returncode != 0:
        yield run.stderr.strip()


def check_schedule(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for cell in line.split(","):
            if not CELL.fullmatch(cell):
                yield f"line {number}: '{cell}' is no task"


CHECKS = {".py": check_python, ".yaml": check_yaml, ".sh": check_shell, ".csv": check_schedule,
          ".json": lambda path: check_keys(json.loads(path.read_text()), known("deepspeed"))}


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "golden"
    files = sorted(path for path in root.glob("*/*") if path.suffix in CHECKS)
    faults = [f"{path.relative_to(root)}: {fault}" for path in files for fault in CHECKS[path.suffix](path)]
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"check_exports: {len(files)} files, {len(faults)} faults" + ("" if yaml else " (YAML not read: no PyYAML)"))
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main())
