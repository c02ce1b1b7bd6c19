#!/usr/bin/env python3
"""Starts the ranks of a job as `torchrun --nnodes 1:N --max-restarts` does, for scripts that break them.

    scripts/faults/torchrun.py WORLD COMMAND...

WORLD is a file that holds the number of ranks to start, or 0 while no machine is there; it is read before each start, and
when it changes, the ranks are ended by SIGTERM and started again. Ranks meet over TCP by RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR and MASTER_PORT. If one fails, the others are ended, and all start again. SIGTERM ends ranks and launcher.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

GRACE_S = 30  # between SIGTERM and SIGKILL, as torchrun's


class Launcher:
    def __init__(self, world, command):
        self.world, self.command, self.ranks, self.ended = Path(world), command, [], False
        signal.signal(signal.SIGTERM, self.terminate)

    def terminate(self, *_):
        self.ended = True

    def wanted(self):
        text = self.world.read_text().strip()
        return int(text) if text else 0

    def start(self, count):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        for rank in range(count):
            names = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            self.ranks.append(subprocess.Popen(self.command, env=os.environ | names))

    def stop(self):
        """Ends the ranks that are left. @returns their exit codes, in the order in which they are seen to have ended"""
        for rank in self.ranks:
            if rank.poll() is None:
                rank.terminate()
        until = time.monotonic() + GRACE_S
        while any(rank.poll() is None for rank in self.ranks) and time.monotonic() < until:
            time.sleep(0.01)
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()
        self.ranks = []

    def run(self):
        while not self.ended:
            count = self.wanted()
            if count == 0:
                time.sleep(0.05)
                continue
            self.start(count)
            while not self.ended:
                codes = [rank.poll() for rank in self.ranks]
                if all(code == 0 for code in codes):
                    return 0
                if any(codes) or self.wanted() != count:  # None and 0 are no failures
                    break
                time.sleep(0.02)
            self.stop()
        return 128 + signal.SIGTERM


if __name__ == "__main__":
    sys.exit(Launcher(sys.argv[1], sys.argv[2:]).run())
