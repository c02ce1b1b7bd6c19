"""What an elastic run that was broken many times must have kept: judged by its log and by pieces that are run again."""

import json
import shutil
import time
from pathlib import Path

from elastic_job import EVERY, RANKS
from processes import Processes, mapped

TOLERANCE = 1e-3  # of the first ten losses after a start, relative, below 1 absolute: sums in another order
LONGEST_PIECE = 200  # steps that are run again
MOST_PIECES = 20


class Judge:
    def __init__(self, job, choose):
        self.job, self.choose = job, choose
        self.broken = []
        self.pieces = []  # (log line, step resumed from, folder with the state and the plan)

    def keep_state(self):
        """Of some jobs: a checkpoint and the plan, to run the steps after it again, undisturbed."""
        lines = self.job.lines()
        starts = [i for i, line in enumerate(lines) if line is None]
        if not starts or self.choose.random() > 0.3 or len(self.pieces) >= MOST_PIECES:
            return
        first = next((line[0] for line in lines[starts[-1]:] if line), None)
        states = self.job.kept_states()
        if first is None or not states or states[-1] < first - 1 or any(piece[0] == starts[-1] for piece in self.pieces):
            return
        state = self.job.folder / f"step-{states[-1]}"
        if state in self.job.damaged:
            return
        kept = self.job.work / f"piece-{len(self.pieces)}"
        try:
            shutil.copytree(state, kept / state.name)
            shutil.copy(self.job.plan_now(), kept / "plan.json")
        except (OSError, shutil.Error):  # the run goes on, and removes old ones
            shutil.rmtree(kept, ignore_errors=True)
            return
        self.pieces.append((starts[-1], states[-1] + 1, kept))

    def judge_log(self):
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
        run = self.job.again(kept, plan, ["--steps", str(last), "--decay-steps", str(self.job.steps), "--resume",
                                          str(kept / f"step-{first - 1}"), "--checkpoint-dir", str(kept / name), "--log",
                                          str(log), "--quiet"])
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
            self.broken.append(f"a loss differs by {worst:.1e} from that of the first plan, on {RANKS} ranks")
        return {"segments equal, bit for bit, run again": f"{equal} of {compared}",
                "most that ten losses differ from the first plan's": f"{worst:.1e}"}

    def judge_rest(self, shared_memory_before):
        until = time.monotonic() + 15
        while (left := Processes().naming(str(self.job.work))) and time.monotonic() < until:
            time.sleep(0.1)
        self.broken += [f"left over: process {pid}" for pid in left]
        self.broken += [f"left over: {path}" for path in self.job.folder.glob("*.tmp")]
        while (left := shared_memory() - shared_memory_before | self.job.states_in_memory()) and time.monotonic() < until:  # other jobs' may come and go
            time.sleep(0.5)
        self.broken += [f"left over: {path}" for path in left]


def shared_memory():
    """What jobs have put there, and no process uses; without states, which jobs may keep while they wait for hosts."""
    there = {path for path in Path("/dev/shm").iterdir() if path.name.startswith(("mpich_shar", "ucx_shm", "meshplan"))
             and not path.name.startswith("meshplan-state-")}
    return there - {Path("/dev/shm", name) for pid in Processes().names for name in mapped(pid, "/dev/shm/")}
