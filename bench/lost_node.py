#!/usr/bin/env python3
"""What the loss of a node costs an elastic run: steps that are computed again, and time until further steps.

    bench/lost_node.py [MESHPLAN] [LOSSES] [HIDDEN]

Three names of this machine play nodes of one slot each, two of them used; a state is in the memory of two nodes after every
step. Again and again one of the nodes that are used goes: its rank is killed, and what its memory holds is deleted. The run
goes on with the spare one, and then with the one that is back. Exit code 1 if a loss costs more than one step or 10 s more
than the steps themselves.
"""

import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "faults"))
from elastic_job import SupervisedJob  # noqa: E402

MOST_STEPS, MOST_S = 1, 10


class TwoNodes(SupervisedJob):
    batch, seq, degrees = 4, 128, ["--ranks", 2, "--dp", 2]
    slots, most, hang_timeout_s = 1, 2, 60

    def __init__(self, meshplan, work, hidden):
        self.model = {**self.model, "hidden_size": hidden, "num_hidden_layers": 8, "num_attention_heads": hidden // 64,
                      "num_key_value_heads": hidden // 64, "intermediate_size": 2 * hidden, "vocab_size": 4096,
                      "max_position_embeddings": 128}
        super().__init__(meshplan, work, steps=1_000_000)


def await_that(job, holds, seconds=120):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until or job.process.poll() is not None:
            sys.exit("lost_node: the run does not go on:\n" + (job.work / "stderr").read_text()[-3000:])
        time.sleep(0.01)


def lose_one(job, choose):
    """@returns steps that are computed again, and seconds from the loss to the start of the first further step"""
    begun = len(job.lines())
    await_that(job, lambda: job.num_steps_done() > 3 and None not in job.lines()[begun:] and len(job.lines()) >= begun + 3)
    time.sleep(choose.random() * job.step_seconds())
    count = len(job.lines())
    job.lose(choose.choice([host for host in job.active if job.ranks_on(host)]))
    lost = time.monotonic()

    def further():
        """Steps that are computed again, once the next job has done one; None until then."""
        lines = job.lines()
        if None not in lines[count:]:
            return None
        start = lines.index(None, count)
        return lines[start - 1][0] + 1 - lines[start + 1][0] if len(lines) > start + 1 else None

    await_that(job, lambda: further() is not None)
    return further(), time.monotonic() - lost - job.step_seconds()


def main():
    meshplan = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/release/cli/meshplan"
    losses = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    hidden = int(sys.argv[3]) if len(sys.argv) > 3 else 256
    work, choose = Path(tempfile.mkdtemp(prefix="meshplan-lost-node-")).resolve(), random.Random(1)
    job = TwoNodes(meshplan, work, hidden)
    job.start()
    try:
        await_that(job, lambda: job.num_steps_done() > 2)
        steps, seconds = zip(*(lose_one(job, choose) for _ in range(losses)))
    finally:
        job.process.terminate()
        job.process.wait(60)
    print(f"median step            {job.step_seconds():.2f} s")
    print(f"nodes lost             {losses}")
    print(f"steps computed again   {statistics.median(steps):g} (median), {max(steps)} (most)")
    print(f"until further steps    {statistics.median(seconds):.1f} s (median), {max(seconds):.1f} s (most)")
    shutil.rmtree(work)
    sys.exit(max(steps) > MOST_STEPS or max(seconds) > MOST_S)


if __name__ == "__main__":
    main()
