#!/usr/bin/env python3
"""What `plan` keeps to, as a command: plan_properties.py MESHPLAN

Pins and bounds hold; the same input gives the same bytes on any number of threads; an interrupted
search answers with a plan that was played and fits, or says that it has none.
"""
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SMALL = ["--model", "tiny-llama", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "16",
         "--seq-len", "128"]
LARGE = ["--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "256",
         "--global-batch", "1024", "--seq-len", "4096"]
FIELDS = {"tp": ("parallel", "tp"), "pp": ("parallel", "pp"), "vpp": ("parallel", "vpp"),
          "dp": ("parallel", "dp"), "mbs": ("micro_batch_size",), "zero": ("zero_stage",)}
HOLDS = {"--fix": lambda value, said: value == said, "--min": lambda value, said: value >= said,
         "--max": lambda value, said: value <= said}


def value_of(plan, name):
    for key in FIELDS[name]:
        plan = plan[key]
    return plan


def plan(meshplan, *words):
    return subprocess.run([meshplan, "plan", *words], capture_output=True, timeout=300)


def check_pins(meshplan):
    draw = random.Random(20261125)
    shown = 0
    for _ in range(24):
        said = [(flag, name, draw.choice([0, 1, 2] if name == "zero" else [1, 2, 4]))
                for flag, name in [(draw.choice(list(HOLDS)), name)
                                   for name in draw.sample(list(FIELDS), 2)]]
        flags = [word for flag, name, value in said for word in (flag, f"{name}={value}")]
        done = plan(meshplan, *SMALL, "--json", *flags)
        if done.returncode != 0:
            continue
        for ranked in json.loads(done.stdout)["ranked"]:
            shown += 1
            for flag, name, value in said:
                found = value_of(ranked["plan"], name)
                assert HOLDS[flag](found, value), f"{flags}: {name} is {found}"
    assert shown >= 40, f"only {shown} plans were shown"


def check_bytes(meshplan, folder):
    for request in (SMALL, ["--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "16",
                            "--global-batch", "64", "--seq-len", "4096"]):
        seen = set()
        for threads in ("1", "2", "7", "0"):
            file = folder / "plan.json"
            done = plan(meshplan, *request, "--json", "--threads", threads, "--out", str(file))
            assert done.returncode == 0, done.stderr
            seen.add((done.stdout, file.read_bytes()))
        assert len(seen) == 1, f"{request}: {len(seen)} answers"


def processor_s(pid):
    """That a process has used: unlike time, about the same on a machine that others use."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupted(meshplan, after_s, *words):
    """Exit code and output of a large search that is interrupted after so much processor time."""
    with tempfile.TemporaryFile() as out:  # a pipe that nobody reads would hold it up
        running = subprocess.Popen([meshplan, "plan", *LARGE, "--threads", "1", *words], stdout=out,
                                   stderr=subprocess.PIPE)
        while running.poll() is None and processor_s(running.pid) < after_s:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        errors = running.communicate(timeout=120)[1]
        out.seek(0)
        return running.returncode, out.read(), errors


def check_interrupts(meshplan, folder):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = plan(meshplan, *LARGE, "--threads", "1", "--json")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert whole.returncode == 0 and json.loads(whole.stdout)["incomplete"] is False
    found = 0
    for part in (0.2, 0.4, 0.6, 0.8):
        file = folder / f"{part}.json"
        code, out, errors = interrupted(meshplan, part * whole_s, "--json", "--out", str(file))
        if code == 0:  # this time the whole search was faster
            continue
        assert code == 130, (code, errors)
        answer = json.loads(out)
        assert answer["incomplete"] is True
        if not answer["feasible"]:
            assert not file.exists()
            continue
        found += 1
        for ranked in answer["ranked"]:
            assert ranked["source"] == "simulation"
            assert ranked["peak_memory_bytes"] <= ranked["capacity_bytes"]
        kept = json.loads(file.read_text())
        assert "stopped" in kept["prediction"]["reasons"][0]
        done = subprocess.run([meshplan, "simulate", str(file)], capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert found > 0, "no interrupted search had a plan"
    code, out, _ = interrupted(meshplan, 0.7 * whole_s)
    assert code == 0 or b"interrupted" in out or b"no plan that fits was found so far" in out, out


def main():
    meshplan = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as work:
        check_pins(meshplan)
        check_bytes(meshplan, Path(work))
        check_interrupts(meshplan, Path(work))
    print("all passed")


if __name__ == "__main__":
    main()
