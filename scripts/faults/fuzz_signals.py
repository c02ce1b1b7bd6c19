#!/usr/bin/env python3
"""Starts small training jobs, sends random signals to random processes of theirs at random moments, and
checks how they end: exit code, cause, what is left, checkpoints, and that a resumed run is the same run.

    scripts/fuzz_signals.py MESHPLAN SECONDS SEED [CASE]    CASE: this one alone; scripts/fuzz.sh --signals
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processes import MODEL, Processes, losses

STEPS = 800
PATIENCE_S = 60
SOFT = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
TARGETS = ["launcher", "rank", "mpiexec", "proxy", "group", "all"]


def send(number, target, launcher, folder, choose):
    try:
        if target == "group":
            os.killpg(launcher, number)
            return
        pids = Processes().of(launcher, target, folder)
        for pid in pids if target == "all" else [choose.choice(pids)] if pids else []:
            os.kill(pid, number)
    except ProcessLookupError:
        pass


class Fuzz:
    def __init__(self, meshplan, work, seed):
        self.meshplan, self.work, self.seed = meshplan, work, seed
        (work / "model.json").write_text(json.dumps(MODEL))
        (work / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)
        subprocess.run([meshplan, "simulate", "--model", "model.json", "--cluster", "cpu-host", "--global-batch", "4",
                        "--seq-len", "32", "--tp", "2", "--out", "plan.json"], cwd=work, check=True,
                       stdout=subprocess.DEVNULL)
        self.run = [meshplan, "run", str(work / "plan.json"), "--data", str(work / "text.txt"), "--steps", str(STEPS)]
        subprocess.run([*self.run, "--quiet", "--log", "whole.jsonl"], cwd=work, check=True)
        self.whole = losses(work / "whole.jsonl")
        self.counts = {}

    def case(self, number):
        choose = random.Random(f"{self.seed} {number}")
        folder = self.work / f"case-{number}"
        folder.mkdir()
        command = [*self.run, "--log", str(folder / "log.jsonl"), "--hang-timeout", "30"]
        saves = choose.random() < 0.7
        if saves:
            command += ["--checkpoint-dir", str(folder / "saved")]
        if saves and choose.random() < 0.7:
            command += ["--checkpoint-every", str(choose.choice([10, 100])), "--keep", "2"]
        kills = choose.random() < 0.3
        numbers = [choose.choice(SOFT) for _ in range(choose.choice([1, 1, 1, 2, 3]))]
        if kills:
            numbers[choose.randrange(len(numbers))] = signal.SIGKILL
        plan = [(choose.choice([0, 0.01, 0.2, 1]) * choose.random() if i else 2 * choose.random(), one,
                 choose.choice(TARGETS)) for i, one in enumerate(numbers)]
        with open(folder / "stderr", "w") as errors:
            job = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
        for delay, one, target in plan:
            time.sleep(delay)
            send(one, target, job.pid, str(folder), choose)
        faults = self.end(job, folder)
        text = (folder / "stderr").read_text()
        faults += self.judge_end(job.returncode, text, kills)
        if saves:
            faults += self.judge_saved(folder, command)
        faults += [f"step {step} has loss {loss}" for step, loss in losses(folder / "log.jsonl")
                   if (step, loss) != self.whole[step - 1]][:3]
        code = job.returncode
        self.counts[code] = self.counts.get(code, 0) + 1
        if faults:
            what = ", ".join(f"{one.name} to {target} after {delay:.3f} s" for delay, one, target in plan)
            print(f"case {number}: {what}; saves: {saves}; exit code {code}")
            print("".join(f"  {fault}\n" for fault in faults) + text)
        return not faults

    def end(self, job, folder):
        """Waits for the job and all that it has started."""
        faults = []
        try:
            job.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            faults.append(f"still running after {PATIENCE_S} s")
            job.kill()
            job.wait()
        until = time.monotonic() + PATIENCE_S / 4
        while (left := Processes().naming(str(folder))) and time.monotonic() < until:
            time.sleep(0.05)
        faults += [f"left over: {pid}" for pid in left]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return faults

    @staticmethod
    def judge_end(code, text, kills):
        died_early = "job ends: died during start-up" in text
        if code == 130 and "interrupted by" not in text:
            return ["130 without a word"]
        if code == 0 or code == 130:
            return [] if "job ends" not in text else ["a death is named, but the job has not failed"]
        if code == 1:
            named = "job ends: " in text
            return [] if (kills or died_early) and named else ["failed without a kill, or without a cause"]
        # The launcher itself: killed, or signalled before its program has begun.
        return [] if code == -signal.SIGKILL and kills or -code in SOFT else ["an exit code that nobody expects"]

    def judge_saved(self, folder, command):
        faults = []
        saved = folder / "saved"
        for checkpoint in sorted(saved.glob("step-*/index.json")) if saved.exists() else []:
            look = subprocess.run([self.meshplan, "checkpoint", "inspect", str(checkpoint.parent)], capture_output=True,
                                  text=True)
            if look.returncode != 0:
                faults.append(f"{checkpoint.parent.name}: {look.stderr}")
        named = re.search(r"after step (\d+); saved \S+/step-(\d+)$", (folder / "stderr").read_text(), re.M)
        if named and not (saved / f"step-{named[2]}" / "index.json").exists():
            faults.append(f"step {named[2]} is not there")
        # A kill may leave step-N.tmp, with its index, of a save or a removal.
        names = [path.parent.name[5:] for path in saved.glob("step-*/index.json")] if saved.exists() else []
        steps = [int(name) for name in names if name.isdigit()]
        if max(steps, default=0) == STEPS:
            return faults
        rest = subprocess.run(command + (["--resume", "latest"] if steps else []), cwd=folder, capture_output=True,
                              text=True, timeout=300)
        if rest.returncode != 0:
            faults.append(f"does not go on: {rest.stderr}")
        elif losses(folder / "log.jsonl")[-1:] != self.whole[-1:]:
            faults.append("does not end as an uninterrupted run does")
        return faults


def main():
    meshplan, seconds, seed = os.path.abspath(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as work:
        fuzz = Fuzz(meshplan, Path(work).resolve(), seed)
        if len(sys.argv) > 4:
            sys.exit(not fuzz.case(int(sys.argv[4])))
        until, cases, failed = time.monotonic() + seconds, 0, 0
        while time.monotonic() < until:
            failed += not fuzz.case(cases)
            cases += 1
        print(f"{cases} jobs, by exit code {dict(sorted(fuzz.counts.items()))}; {failed} failed")
        sys.exit(failed > 0)


if __name__ == "__main__":
    main()
