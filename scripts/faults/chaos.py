#!/usr/bin/env python3
"""Breaks elastic training runs at random moments and checks that they go on as promised; scripts/chaos.sh.

    scripts/faults/chaos.py MESHPLAN MINUTES SEED

Three quarters of the time: three names of this machine play hosts of two slots each, and `meshplan run --elastic` trains on
four ranks of them over MPI, with its state in the memory of the hosts after each step. Whoever is killed is replaced by the
run itself, but for its supervisor, which this script starts again. The last quarter: ranks that a launcher like torchrun
starts, and starts again, over TCP. After each fault a run must make further steps within the job's `limit_s`. At the end the log is
judged:

  - of some jobs, chosen at random: their losses equal, bit for bit, those of an undisturbed run of their plan from a
    checkpoint of theirs; and the first ten equal those of the first plan within a tolerance;
  - no step is missing, and no start computes more steps again than checkpoints on the disk allow;
  - no process, shared memory or unfinished file is left.
"""

import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from elastic_job import SupervisedJob, TorchrunJob, kill
from judge import Judge, shared_memory
from small_disk import SmallDisk

TORCHRUN_PART = 0.25


class Chaos:
    def __init__(self, job, disk, choose):
        self.job, self.disk, self.choose = job, disk, choose
        self.judge = Judge(job, choose)
        self.took = {}  # seconds until a further step, by fault
        self.faults = [fault for fault in job.FAULTS if disk.is_there or fault != "fill_disk"]

    # ---------------------------------------------------------------- what breaks

    def some(self, pids, count=1):
        return self.choose.sample(pids, min(count, len(pids)))

    def kill_rank(self):
        kill(self.some(self.job.pids("rank")))

    def kill_two(self):
        kill(self.some(self.job.pids("rank"), 2))

    def lose_node(self):
        self.job.lose_node(self.choose)

    def kill_launcher(self):
        self.job.process.kill()

    def kill_mpiexec(self):
        kill(self.job.pids("mpiexec"))

    def kill_proxy(self):
        kill(self.some(self.job.pids("proxy")))

    def kill_guardian(self):
        kill(self.some(self.job.named("meshplan-guard")))

    def kill_spare(self):
        kill(self.some(self.job.named("meshplan-spare")))

    def stop_guardian(self):
        kill(self.some(self.job.named("meshplan-guard")), signal.SIGSTOP)

    def kill_guardians(self):
        kill(self.job.named("meshplan-guard") + self.job.named("meshplan-spare"))

    def stop_rank(self):
        kill(self.some(self.job.pids("rank")), signal.SIGSTOP)

    def slow_rank(self):
        """Stopped for two thirds of three seconds, in turns that are shorter than a step."""
        for pid in self.some(self.job.pids("rank")):
            until = time.monotonic() + 3
            while time.monotonic() < until:
                kill([pid], signal.SIGSTOP)
                time.sleep(0.002)
                kill([pid], signal.SIGCONT)
                time.sleep(0.001)

    def newest_share(self):
        steps = self.job.kept_states()
        shares = sorted((self.job.folder / f"step-{steps[-1]}").glob("*.safetensors")) if steps else []
        return self.choose.choice(shares) if shares else None

    def break_newest(self, how):
        """The newest checkpoint is no longer intact, and the job has to resume."""
        try:
            if share := self.newest_share():
                self.job.damaged.add(share.parent)
                how(share)
        except FileNotFoundError:  # the run has just removed it
            pass
        self.kill_rank()

    def damage_newest(self):
        def flip_a_bit(share):
            with open(share, "r+b") as file:
                file.seek(self.choose.randrange(share.stat().st_size))
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 0x40]))
        self.break_newest(flip_a_bit)

    def cut_newest(self):
        self.break_newest(lambda share: os.truncate(share, share.stat().st_size // 2))

    def fill_disk(self):
        """Until a save has failed, and a while longer."""
        errors, until = self.job.work / "stderr", time.monotonic() + 5
        said = errors.stat().st_size
        noticed = lambda: b"No space left" in errors.read_bytes()[said:]
        self.disk.fill(until=lambda: noticed() or time.monotonic() > until)

    def remove_host(self):
        self.job.shrink(self.choose)

    def add_host(self):
        self.job.grow(self.choose)

    def terminate(self):
        """A polite end, as of a scheduler; the same command goes on."""
        self.job.process.terminate()

    # ---------------------------------------------------------------- what must follow

    def one(self, number):
        fault = self.choose.choice(self.faults)
        self.job.stores_of(self.job.pids("rank"))
        if not self.job.pids("rank") and fault not in self.job.WITHOUT_RANKS:
            fault = sorted(self.job.WITHOUT_RANKS)[-1]
        getattr(self, fault)()
        took = self.await_steps(self.job.num_steps_done() + 3)
        self.took.setdefault(fault, []).append(self.job.limit_s if took is None else took)
        state = "goes on" if took is not None else "DOES NOT GO ON"
        print(f"chaos: {number:4d}  {fault:16s} {state} after {took if took is not None else self.job.limit_s:5.1f} s, "
              f"step {self.job.last_step()}", flush=True)
        if took is None:
            self.judge.broken.append(f"fault {number}, {fault}: no further step within {self.job.limit_s} s")
        self.judge.keep_state()

    def await_steps(self, lines):
        start = time.monotonic()
        while time.monotonic() - start < self.job.limit_s:
            if self.job.process.poll() is not None:
                if self.job.process.returncode not in self.job.ends:
                    self.judge.broken.append(f"the launcher ended with {self.job.process.returncode}")
                    return None
                self.job.start()
            if self.job.num_steps_done() >= lines:
                return time.monotonic() - start
            time.sleep(0.05)
        return None

    def go(self, minutes, first):
        """@returns the number of the last fault, and figures of the run"""
        before = shared_memory()
        self.job.start()
        if self.await_steps(3) is None:
            sys.exit("chaos: the run does not start:\n" + (self.job.work / "stderr").read_text())
        until, number = time.monotonic() + 60 * minutes, first
        while time.monotonic() < until and not self.judge.broken:
            time.sleep(self.choose.choice([0, 0.05, 0.5, 2]) * self.choose.random())
            self.one(number)
            number += 1
        self.job.process.terminate()
        try:
            self.job.process.wait(60)
        except subprocess.TimeoutExpired:
            self.judge.broken.append("the run does not end within 60 s of SIGTERM")
            kill([self.job.process.pid, *self.job.pids("all")])
        self.judge.judge_rest(before)
        figures = self.judge.judge_log()
        figures.update(self.judge.judge_pieces())
        figures["starts of the launcher"] = self.job.starts
        return number, figures

    def print(self, kind, figures):
        print(f"chaos: {kind}")
        for name, took in sorted(self.took.items()):
            print(f"chaos: {name:50s} {len(took):4d}  further steps after {statistics.median(took):4.1f} s "
                  f"(median), {max(took):4.1f} s (most)")
        for name, value in figures.items():
            print(f"chaos: {name:50s} {value}", flush=True)


def main():
    meshplan, minutes, seed = os.path.abspath(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    work, choose = Path(tempfile.mkdtemp(prefix="meshplan-chaos-")).resolve(), random.Random(seed)
    number, broken, errors = 0, [], ""
    for kind, make, part in [("an elastic run over MPI", SupervisedJob, 1 - TORCHRUN_PART),
                             ("ranks under a launcher like torchrun, over TCP", TorchrunJob, TORCHRUN_PART)]:
        if broken:
            break
        folder = work / make.__name__
        folder.mkdir()
        disk = SmallDisk(folder / "saved")
        if not disk.is_there:
            print("chaos: no file system can be mounted here: disks are not filled", flush=True)
        chaos = Chaos(make(meshplan, folder, steps=1_000_000), disk, choose)
        number, figures = chaos.go(part * minutes, number)
        chaos.print(kind, figures)
        broken += chaos.judge.broken
        if broken:  # the mounted one goes with this process
            shutil.copytree(folder / "saved", folder / "saved-as-it-was", dirs_exist_ok=True)
        disk.unmount()
        errors = (folder / "stderr").read_text()
    print(f"chaos: {number} faults in {minutes:g} minutes, seed {seed}; {len(broken)} promises broken")
    for one in broken[:10]:
        print(f"chaos: BROKEN: {one}")
    if broken:
        print(errors[-4000:])
        sys.exit(f"chaos: all of it is in {work}")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
