"""Elastic training runs that scripts break: what is started, which processes there are, and what their log says."""

import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
from pathlib import Path

from processes import MODEL, Processes, mapped

RANKS = 4
EVERY = 5  # steps between checkpoints


class Job:
    """A run whose processes may be killed, and that is started again by the same command."""

    model, batch, seq, text = MODEL, 12, 32, "the quick brown fox jumps over the lazy dog\n" * 2000
    limit_s = 90  # until further steps after a fault
    degrees, hang_timeout_s = ["--dp", 2, "--tp", 2], 6
    ends = (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGTERM, 0)  # that no promise forbids

    def __init__(self, meshplan, work, steps):
        self.meshplan, self.work, self.steps = meshplan, work, steps
        self.folder, self.log = work / "saved", work / "log.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        (work / "model.json").write_text(json.dumps(self.model))
        (work / "text.txt").write_text(self.text)
        self.meshplan_run("simulate", "--model", "model.json", "--cluster", "cpu-host", "--global-batch", self.batch,
                          "--seq-len", self.seq, *self.degrees, "--out", "plan.json")
        self.errors = open(work / "stderr", "a")
        self.starts = 0
        self.process = None
        self.log_end, self.log_lines, self.step_times, self.ranks_now = 0, [], [], RANKS  # what was read of the log
        self.damaged = set()  # checkpoints that were damaged on purpose
        self.stores = set()   # folders in the memory of nodes that were seen

    def meshplan_run(self, *words):
        subprocess.run([self.meshplan, *map(str, words)], cwd=self.work, check=True, stdout=subprocess.DEVNULL)

    def run_words(self):
        """The command that every start and every undisturbed piece shares, but for the plan."""
        return ["--data", str(self.work / "text.txt")]

    def elastic_words(self):
        return [str(self.work / "plan.json"), *self.run_words(), "--steps", str(self.steps), "--elastic",
                "--resume", "latest-if-any", "--checkpoint-dir", str(self.folder), "--checkpoint-every", str(EVERY),
                "--keep", "4", "--log", str(self.log), "--hang-timeout", str(self.hang_timeout_s)]

    def start_process(self, command):
        self.starts += 1
        self.process = subprocess.Popen(command, cwd=self.work, stdout=subprocess.DEVNULL, stderr=self.errors,
                                        start_new_session=True)

    # ---------------------------------------------------------------- what the log says

    def read_log(self):
        """What the log says since it was read last; a line that is being written is left for the next time."""
        if not self.log.exists():
            return
        if self.log.stat().st_size < self.log_end:  # a job that was killed before it had a state has begun anew
            self.log_end, self.log_lines, self.step_times = 0, [], []
        with open(self.log, "rb") as log:
            log.seek(self.log_end)
            text = log.read()
        whole = text.rfind(b"\n") + 1
        self.log_end += whole
        for line in text[:whole].splitlines():
            if b'"kind":"step"' in line and line.endswith(b"}"):
                step = json.loads(line)
                self.log_lines.append((step["step"], step["loss"]))
                self.step_times.append(step["step_time_s"])
            elif b'"kind":"run"' in line and line.endswith(b"}"):
                self.log_lines.append(None)
                self.ranks_now = json.loads(line)["ranks"]

    def lines(self):
        """(step, loss) of the log's steps, and None where a job began."""
        self.read_log()
        return self.log_lines

    def last_step(self):
        return next((line[0] for line in reversed(self.lines()) if line), 0)

    def num_steps_done(self):
        """Of all jobs, those that were computed again included."""
        self.read_log()
        return len(self.step_times)

    def step_seconds(self):
        """Median of the last steps."""
        self.read_log()
        return statistics.median(self.step_times[-20:])

    # ---------------------------------------------------------------- what it keeps

    def kept_states(self):
        steps = [int(path.parent.name[5:]) for path in self.folder.glob("step-*/index.json")
                 if path.parent.name[5:].isdigit()]
        return sorted(steps)

    def stores_of(self, ranks):
        """Folders of states in the memory of nodes into which these processes write."""
        names = {name for pid in ranks for name in mapped(pid, "/dev/shm/")}
        stores = {Path("/dev/shm", name) for name in names if name.startswith("meshplan-state-")}
        self.stores |= stores
        return stores

    def states_in_memory(self):
        return {store for store in self.stores if store.exists()}

    def pids(self, target):
        return Processes().of(self.process.pid, target, str(self.work))

    def named(self, name):
        processes = Processes()
        return [pid for pid in processes.naming(str(self.work)) if processes.names[pid] == name]

    def again(self, kept, plan, words):
        """Runs a plan undisturbed. @returns the finished process"""
        return subprocess.run([self.meshplan, "run", str(plan), *self.run_words(), *words], cwd=kept,
                              capture_output=True, text=True)


class SupervisedJob(Job):
    """`meshplan run --elastic`: three names of this machine play hosts of two slots each."""

    FAULTS = ["kill_rank"] * 6 + ["kill_two"] * 2 + ["lose_node"] * 4 + ["kill_launcher"] * 3 + ["kill_mpiexec"] * 2 + \
        ["kill_proxy", "kill_guardian", "kill_spare", "stop_guardian", "kill_guardians", "stop_rank", "slow_rank",
         "slow_rank", "damage_newest", "cut_newest", "fill_disk", "fill_disk", "remove_host", "remove_host", "add_host",
         "add_host", "terminate"]
    slots, most = 2, RANKS
    WITHOUT_RANKS = {"add_host", "remove_host", "kill_launcher"}  # that make sense while the run waits

    def __init__(self, meshplan, work, steps):
        super().__init__(meshplan, work, steps)
        self.hostfile = work / "hosts"
        self.hosts = list(dict.fromkeys(["localhost", "127.0.0.1", socket.gethostname()]))
        self.write_hosts(self.hosts)

    def write_hosts(self, names):
        self.active = names
        unfinished = self.hostfile.with_suffix(".new")
        unfinished.write_text("".join(f"{name}:{self.slots}\n" for name in names))
        unfinished.rename(self.hostfile)

    def run_words(self):
        return [*super().run_words(), "--any-placement"]

    def start(self):
        self.start_process([self.meshplan, "run", *self.elastic_words(), f"1:{self.most}", "--hostfile", str(self.hostfile),
                            "--retry-after", "1", "--failures-per-hour", "1000000", "--node-failures", "1000000"])

    def elastic_words(self):
        words = super().elastic_words()
        words.append(words.pop(words.index("--elastic")))  # it takes a range
        return words

    def plan_now(self):
        return Path(json.loads((self.folder / "job.json").read_text())["job_plan"])

    def ranks_on(self, host):
        """Processes of the ranks that mpiexec started under this name."""
        wanted, ranks = f"MPIR_CVAR_CH3_INTERFACE_HOSTNAME={host}".encode(), []
        for pid in self.pids("rank"):
            try:
                if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    ranks.append(pid)
            except OSError:
                pass
        return ranks

    def lose_node(self, choose):
        """A host goes, with all ranks and what its memory holds."""
        self.lose(choose.choice(self.active))

    def lose(self, host):
        lose_all(self.ranks_on(host), self)

    def shrink(self, choose):
        """A host leaves the hostfile, and its ranks die with it."""
        if len(self.active) > 1:
            leaves = choose.choice(self.active)
            self.write_hosts([name for name in self.active if name != leaves])
            kill(self.ranks_on(leaves))

    def grow(self, choose):
        missing = [name for name in self.hosts if name not in self.active]
        if missing:
            self.write_hosts([*self.active, choose.choice(missing)])


class TorchrunJob(Job):
    """The ranks of another launcher, which meet over TCP, and plan for as many as there are."""

    FAULTS = ["kill_rank"] * 4 + ["kill_two"] * 2 + ["lose_node"] * 2 + ["stop_rank", "slow_rank", "damage_newest",
                                                                      "cut_newest", "fill_disk", "remove_host",
                                                                      "remove_host", "add_host", "add_host", "terminate"]
    WITHOUT_RANKS = {"add_host", "terminate"}
    limit_s = 360  # ranks that start wait 300 s for all others, and one of them may have been stopped

    def __init__(self, meshplan, work, steps):
        super().__init__(meshplan, work, steps)
        self.world = work / "world"
        self.write_world(RANKS)

    def write_world(self, ranks):
        unfinished = self.world.with_suffix(".new")
        unfinished.write_text(str(ranks))
        unfinished.rename(self.world)
        self.active = ranks

    def launcher(self, world):
        return [sys.executable, str(Path(__file__).parent / "torchrun.py"), str(world), self.meshplan, "run"]

    def start(self):
        self.start_process([*self.launcher(self.world), *self.elastic_words()])

    def pids(self, target):
        if target == "rank":
            return Processes().children.get(self.process.pid, [])
        return super().pids(target)

    def plan_now(self):
        """What the ranks planned is planned once more, by hand."""
        ranks = self.ranks_now
        if ranks == RANKS:
            return self.work / "plan.json"
        plan = self.work / f"plan-of-{ranks}.json"
        if not plan.exists():
            self.meshplan_run("simulate", self.work / "plan.json", "--gpus", ranks, "--out", plan)
        return plan

    def again(self, kept, plan, words):
        degrees = json.loads(plan.read_text())["parallel"]
        world = kept / "world"
        world.write_text(str(degrees["tp"] * degrees["cp"] * degrees["pp"] * degrees["dp"]))
        return subprocess.run([*self.launcher(world), str(plan), *self.run_words(), *words], cwd=kept,
                              capture_output=True, text=True)

    def lose_node(self, _):
        """The only one, with all that its memory holds."""
        lose_all(self.pids("rank"), self)

    def shrink(self, choose):
        self.write_world(max(1, self.active - choose.choice([1, 2])))

    def grow(self, choose):
        self.write_world(min(RANKS, self.active + choose.choice([1, 2])))


def lose_all(ranks, job):
    """All ranks of a node, and what its memory holds."""
    stores = job.stores_of(ranks)
    kill(ranks)
    for store in stores:
        shutil.rmtree(store, ignore_errors=True)


def kill(pids, number=signal.SIGKILL):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
