"""A small file system that can be filled, for checkpoints of jobs that are to meet a full disk."""

import os
import subprocess
import time

SIZE_MIB = 64


class SmallDisk:
    """Mounted on a folder; `is_there` is false where nothing may be mounted. scripts/chaos.sh gives a mount namespace of
    its own, so that it goes with the process that made it."""

    def __init__(self, folder):
        self.filler = folder / "filler"
        folder.mkdir(parents=True, exist_ok=True)
        self.is_there = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "chaos", str(folder)],
                                       capture_output=True).returncode == 0
        self.folder = folder

    def fill(self, until):
        """Leaves no byte free, also where others delete files, until `until()` is true."""
        with open(self.filler, "ab", buffering=0) as filler:
            while not until():
                try:
                    for size in (1 << 20, 1 << 12):
                        while True:
                            filler.write(bytes(size))
                except OSError:
                    time.sleep(0.005)
        os.remove(self.filler)

    def unmount(self):
        if self.is_there:
            subprocess.run(["umount", str(self.folder)], check=True)
