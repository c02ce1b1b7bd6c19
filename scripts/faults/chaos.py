#!/usr/bin/env python3
"""Breaks an elastic training run at random moments and checks that it goes on as promised; scripts/chaos.sh.

    scripts/faults/chaos.py MESHPLAN MINUTES SEED

Three names of this machine play hosts of two slots each. One run trains on four ranks of them by `run --elastic`, with its
state in the memory of the hosts after each step; whoever is killed is replaced by the run itself, but for its supervisor,
which this script starts again. After each fault the run must make further steps within LIMIT_S. At the end the log is
judged:

  - of some jobs, chosen at random: their losses equal, bit for bit, those of an undisturbed run of their plan from a
    checkpoint of theirs; and the first ten equal those of the first plan within TOLERANCE;
  - no step is missing, and no start computes more steps again than checkpoints on the disk allow;
  - no process, shared memory or unfinished file is left.
"""

import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processes import MODEL, Processes

TOLERANCE = 1e-3  # of the first ten losses after a start, relative, below 1 absolute: sums in another order
LONGEST_PIECE = 200  # steps that are run again
EVERY = 5         # steps between checkpoints
LIMIT_S = 90      # until a step is made after a fault
BATCH, SEQ = 12, 32


class Job:
    """The run, its supervisor and its hosts."""

    def __init__(self, meshplan, work, steps):
        self.meshplan, self.work, self.steps = meshplan, work, steps
        self.folder, self.log, self.hostfile = work / "saved", work / "log.jsonl", work / "hosts"
        (work / "model.json").write_text(json.dumps(MODEL))
        (work / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 2000)
        subprocess.run([meshplan, "simulate", "--model", "model.json", "--cluster", "cpu-host", "--global-batch",
                        str(BATCH), "--seq-len", str(SEQ), "--dp", "2", "--tp", "2", "--out", "plan.json"],
                       cwd=work, check=True, stdout=subprocess.DEVNULL)
        names = ["localhost", "127.0.0.1", socket.gethostname()]
        self.hosts = list(dict.fromkeys(names))
        self.write_hosts(self.hosts)
        self.common = ["--data", str(work / "text.txt"), "--any-placement"]
        self.errors = open(work / "stderr", "a")
        self.starts = 0
        self.process = None

    def write_hosts(self, names):
        self.active = names
        text = "".join(f"{name}:2\n" for name in names)
        unfinished = self.hostfile.with_suffix(".new")
        unfinished.write_text(text)
        unfinished.rename(self.hostfile)

    def start(self):
        self.starts += 1
        command = [self.meshplan, "run", str(self.work / "plan.json"), *self.common, "--steps", str(self.steps),
                   "--elastic", "1:4", "--hostfile", str(self.hostfile),
                   "--resume", "latest-if-any", "--checkpoint-dir", str(self.folder), "--checkpoint-every", str(EVERY),
                   "--keep", "4", "--log", str(self.log), "--hang-timeout", "6", "--retry-after", "1",
                   "--failures-per-hour", "1000000", "--node-failures", "1000000"]
        self.process = subprocess.Popen(command, cwd=self.work, stdout=subprocess.DEVNULL, stderr=self.errors,
                                        start_new_session=True)

    def lines(self):
        """(step, loss) of the log's steps, and None where a job began."""
        found = []
        for line in self.log.read_text().splitlines() if self.log.exists() else []:
            if not line.endswith("}"):
                continue
            if '"kind":"step"' in line:
                step = json.loads(line)
                found.append((step["step"], step["loss"]))
            elif '"kind":"run"' in line:
                found.append(None)
        return found

    def last_step(self):
        steps = [line[0] for line in self.lines()[-50:] if line]
        return steps[-1] if steps else 0

    def num_lines(self):
        return sum(line is not None for line in self.lines())

    def kept_states(self):
        steps = [int(path.parent.name[5:]) for path in self.folder.glob("step-*/index.json")
                 if path.parent.name[5:].isdigit()]
        return sorted(steps)

    def ranks_on(self, host):
        """Processes of the ranks that mpiexec started under this name."""
        wanted, ranks = f"MPIR_CVAR_CH3_INTERFACE_HOSTNAME={host}".encode(), []
        for pid in Processes().of(self.process.pid, "rank", str(self.work)):
            try:
                if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    ranks.append(pid)
            except OSError:
                pass
        return ranks

    def stores(self):
        """Folders of the run's states in the memory of its nodes, by node."""
        folders = {}
        for path in Path("/dev/shm").glob("meshplan-state-*"):
            for host in self.hosts:
                if path.name.endswith(f"-{host}"):
                    folders[host] = path
        return folders


class Chaos:
    FAULTS = ["kill_rank"] * 6 + ["kill_two"] * 2 + ["lose_node"] * 4 + ["kill_supervisor"] * 3 + ["kill_mpiexec"] * 2 + \
        ["kill_proxy", "kill_guardian", "kill_spare", "stop_guardian", "kill_guardians", "stop_rank", "slow_rank",
         "slow_rank", "damage_newest", "cut_newest", "remove_host", "remove_host", "add_host", "add_host",
         "terminate"]

    def __init__(self, job, seed):
        self.job, self.choose = job, random.Random(seed)
        self.took, self.broken = {}, []  # seconds until a further step, by fault
        self.pieces = []  # (log line, step resumed from, plan file) whose state was kept

    # ---------------------------------------------------------------- what breaks

    def pids(self, target):
        return Processes().of(self.job.process.pid, target, str(self.job.work))

    def named(self, name):
        processes = Processes()
        return [pid for pid in processes.naming(str(self.job.work)) if processes.names[pid] == name]

    def kill(self, pids, number=signal.SIGKILL):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def some(self, pids, count=1):
        return self.choose.sample(pids, min(count, len(pids)))

    def kill_rank(self):
        self.kill(self.some(self.pids("rank")))

    def kill_two(self):
        self.kill(self.some(self.pids("rank"), 2))

    def lose_node(self):
        """A host goes, with all ranks and what its memory holds."""
        host = self.choose.choice(self.job.active)
        ranks = self.job.ranks_on(host)
        self.kill(ranks)
        if ranks and (store := self.job.stores().get(host)):
            shutil.rmtree(store, ignore_errors=True)

    def kill_supervisor(self):
        self.job.process.kill()

    def kill_mpiexec(self):
        self.kill(self.pids("mpiexec"))

    def kill_proxy(self):
        self.kill(self.some(self.pids("proxy")))

    def kill_guardian(self):
        self.kill(self.some(self.named("meshplan-guard")))

    def kill_spare(self):
        self.kill(self.some(self.named("meshplan-spare")))

    def stop_guardian(self):
        self.kill(self.some(self.named("meshplan-guard")), signal.SIGSTOP)

    def kill_guardians(self):
        self.kill(self.named("meshplan-guard") + self.named("meshplan-spare"))

    def stop_rank(self):
        self.kill(self.some(self.pids("rank")), signal.SIGSTOP)

    def slow_rank(self):
        """Stopped for most of three seconds."""
        for pid in self.some(self.pids("rank")):
            for _ in range(10):
                self.kill([pid], signal.SIGSTOP)
                time.sleep(0.2)
                self.kill([pid], signal.SIGCONT)
                time.sleep(0.1)

    def newest_share(self):
        steps = self.job.kept_states()
        shares = sorted((self.job.folder / f"step-{steps[-1]}").glob("*.safetensors")) if steps else []
        return self.choose.choice(shares) if shares else None

    def damage_newest(self):
        """A bit of the newest checkpoint changes, and the job has to resume."""
        if share := self.newest_share():
            with open(share, "r+b") as file:
                file.seek(self.choose.randrange(share.stat().st_size))
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 0x40]))
        self.kill_rank()

    def cut_newest(self):
        if share := self.newest_share():
            os.truncate(share, share.stat().st_size // 2)
        self.kill_rank()

    def remove_host(self):
        """Its ranks die with it."""
        if len(self.job.active) > 1:
            self.job.write_hosts([name for name in self.job.active if name != self.choose.choice(self.job.active)]
                                 or self.job.active[:1])
        self.kill(self.some(self.pids("rank"), 2))

    def add_host(self):
        missing = [name for name in self.job.hosts if name not in self.job.active]
        if missing:
            self.job.write_hosts(self.job.active + self.some(missing))

    def terminate(self):
        """A polite end, as of a scheduler; the same command goes on."""
        self.job.process.terminate()

    # ---------------------------------------------------------------- what must follow

    def one(self, number):
        fault = self.choose.choice(self.FAULTS)
        before = self.job.num_lines()
        if not self.pids("rank") and fault not in ("add_host", "remove_host", "kill_supervisor"):
            fault = "kill_supervisor"
        getattr(self, fault)()
        took = self.await_steps(before + 3)
        self.took.setdefault(fault, []).append(LIMIT_S if took is None else took)
        state = "goes on" if took is not None else "DOES NOT GO ON"
        print(f"chaos: {number:4d}  {fault:16s} {state} after {took if took is not None else LIMIT_S:5.1f} s, "
              f"step {self.job.last_step()}", flush=True)
        if took is None:
            self.broken.append(f"fault {number}, {fault}: no further step within {LIMIT_S} s")
        self.keep_state()

    def await_steps(self, lines):
        start = time.monotonic()
        while time.monotonic() - start < LIMIT_S:
            if self.job.process.poll() is not None:
                if self.job.process.returncode not in (-signal.SIGKILL, 130, -signal.SIGTERM, 0):
                    self.broken.append(f"the supervisor ended with {self.job.process.returncode}")
                if self.job.last_step() >= self.job.steps:
                    return time.monotonic() - start
                self.job.start()
            if self.job.num_lines() >= lines:
                return time.monotonic() - start
            time.sleep(0.05)
        return None

    def keep_state(self):
        """Of some jobs: a checkpoint and the plan, to run the steps after it again, undisturbed."""
        lines = self.job.lines()
        starts = [i for i, line in enumerate(lines) if line is None]
        if not starts or self.choose.random() > 0.3 or len(self.pieces) >= 20:
            return
        first = next((line[0] for line in lines[starts[-1]:] if line), None)
        states = self.job.kept_states()
        if first is None or not states or states[-1] < first - 1 or any(piece[0] == starts[-1] for piece in self.pieces):
            return
        state = self.job.folder / f"step-{states[-1]}"
        record = json.loads((self.job.folder / "job.json").read_text())
        plan = self.job.folder / "job-plan.json" if record["ranks"] != 4 else self.job.work / "plan.json"
        kept = self.job.work / f"piece-{len(self.pieces)}"
        try:
            shutil.copytree(state, kept / state.name)
            shutil.copy(plan, kept / "plan.json")
        except (OSError, shutil.Error):  # the run goes on, and removes old ones
            return
        self.pieces.append((starts[-1], states[-1] + 1, kept))

    # ---------------------------------------------------------------- the verdict

    def judge(self):
        lines = self.job.lines()
        last, seen, lost, begins = 0, set(), [], False
        for line in lines:
            if line is None:
                begins = True
                continue
            step = line[0]
            # A job may go on from a newer state than the one before it, of a host that is back: its steps were done.
            if step > 1 and step - 1 not in seen:
                self.broken.append(f"step {step - 1} was never done: the log goes from {last} to {step}")
            if begins:
                lost.append(max(0, last + 1 - step))
                begins = False
            last = step
            seen.add(step)
        if max(lost, default=0) > 3 * EVERY:  # an interval, the save that was being written, and one that was damaged
            self.broken.append(f"the run went back by {max(lost)} steps; checkpoints are {EVERY} steps apart")
        lost.sort()
        return {"steps": len(seen), "jobs": len(lost),
                "steps computed again, median and most": f"{lost[len(lost) // 2]}, {lost[-1]}",
                "starts that computed at most 1 step again": f"{sum(steps <= 1 for steps in lost)} of {len(lost)}"}

    def again(self, kept, plan, first, last):
        """Losses of the steps from `first` to `last`, trained from the kept state with nothing in the way."""
        name = f"{plan.parent.name}-{plan.stem}"
        log = kept / f"{name}.jsonl"
        run = subprocess.run([self.job.meshplan, "run", str(plan), *self.job.common, "--steps", str(last),
                              "--decay-steps", str(self.job.steps), "--resume", str(kept / f"step-{first - 1}"),
                              "--checkpoint-dir", str(kept / name), "--log", str(log), "--quiet"],
                             cwd=kept, capture_output=True, text=True)
        if run.returncode != 0:
            self.broken.append(f"steps {first} to {last} cannot be run again: {run.stderr[-300:]}")
            return []
        return [(line["step"], line["loss"]) for line in map(json.loads, log.read_text().splitlines())
                if line["kind"] == "step"]

    def judge_pieces(self):
        """A segment beside faults is, bit for bit, what its plan gives undisturbed, and near what the first plan does."""
        lines, equal, compared, worst = self.job.lines(), 0, 0, 0.0
        for start, first, kept in self.pieces:
            disturbed = []
            for line in lines[start + 1:]:
                if line is None or len(disturbed) == LONGEST_PIECE:
                    break
                if line[0] >= first:
                    disturbed.append(line)
            if not disturbed:  # it ended right behind the checkpoint
                continue
            compared += 1
            last = disturbed[-1][0]
            again = self.again(kept, kept / "plan.json", first, last)
            if again == disturbed:
                equal += 1
            elif again:
                self.broken.append(f"steps {first} to {last} differ from an undisturbed run's")
            before = self.again(kept, self.job.work / "plan.json", first, min(last, first + 9))
            for (_, loss), (_, old) in zip(disturbed, before):
                worst = max(worst, abs(loss - old) / max(old, 1))
        if worst > TOLERANCE:
            self.broken.append(f"a loss differs by {worst:.1e} from the first plan's")
        return {"segments equal, bit for bit, run again": f"{equal} of {compared}",
                "most that ten losses differ from the first plan's": f"{worst:.1e}"}

    def judge_rest(self):
        until = time.monotonic() + 15
        while (left := Processes().naming(str(self.job.work))) and time.monotonic() < until:
            time.sleep(0.1)
        self.broken += [f"left over: process {pid}" for pid in left]
        self.broken += [f"left over: {path}" for path in self.job.folder.glob("*.tmp")]


def shared_memory():
    return {path for path in Path("/dev/shm").iterdir() if path.name.startswith(("mpich_shar", "ucx_shm", "meshplan"))}


def main():
    meshplan, minutes, seed = os.path.abspath(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    shared_before = shared_memory()
    work = Path(tempfile.mkdtemp(prefix="meshplan-chaos-")).resolve()
    job = Job(meshplan, work, steps=1_000_000)
    chaos = Chaos(job, seed)
    job.start()
    if chaos.await_steps(3) is None:
        sys.exit("chaos: the run does not start:\n" + (work / "stderr").read_text())
    until, number = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < until and not chaos.broken:
        time.sleep(chaos.choose.choice([0, 0.05, 0.5, 2]) * chaos.choose.random())
        chaos.one(number)
        number += 1
    job.process.terminate()
    job.process.wait(60)
    chaos.judge_rest()
    chaos.broken += [f"left over: {path}" for path in shared_memory() - shared_before]
    figures = chaos.judge()
    figures.update(chaos.judge_pieces())
    figures["supervisors started"] = job.starts
    for name, took in sorted(chaos.took.items()):
        print(f"chaos: {name:50s} {len(took):4d}  further steps after {statistics.median(took):4.1f} s "
              f"(median), {max(took):4.1f} s (most)")
    for name, value in figures.items():
        print(f"chaos: {name:50s} {value}")
    print(f"chaos: {number} faults in {minutes:g} minutes, seed {seed}; {len(chaos.broken)} promises broken")
    for broken in chaos.broken[:10]:
        print(f"chaos: BROKEN: {broken}")
    if chaos.broken:
        print((work / "stderr").read_text()[-4000:])
        sys.exit(f"chaos: all of it is in {work}")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
