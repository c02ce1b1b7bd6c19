#!/usr/bin/env python3
"""Who reaches a port of a job of one machine cannot end it, nor change what it computes.

Every listening TCP socket of the job's processes is on loopback, or closed to whoever calls; 300
random bytes are sent to each. Usage: listeners_test.py PATH_OF_meshplan MPIEXEC TESTS_FOLDER
"""
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time

SECONDS_OF_TRAINING = 6  # longer than it takes to call every socket


def socket_inodes(folder):
    """-> names of the job's processes that hold it: mpiexec and its proxies, too, all of which
    inherit the variable."""
    inodes = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                if f"MESHPLAN_TEST_JOB={folder}".encode() not in file.read():
                    continue
            with open(f"/proc/{process}/comm") as file:
                name = file.read().strip()
            for descriptor in os.listdir(f"/proc/{process}/fd"):
                found = re.match(r"socket:\[(\d+)\]",
                                 os.readlink(f"/proc/{process}/fd/{descriptor}"))
                if found:
                    inodes.setdefault(found.group(1), set()).add(name)
        except OSError:
            continue  # it has ended
    return inodes


def address_of(text):
    """What /proc/net/tcp and tcp6 write as words of the machine's byte order."""
    packed = b"".join(struct.pack("=I", int(text[i:i + 8], 16)) for i in range(0, len(text), 8))
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, packed)


def listeners(folder):
    """(address, port) -> names of the job's processes that hold it."""
    inodes = socket_inodes(folder)
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            for words in map(str.split, list(lines)[1:]):
                if words[3] == "0A" and words[9] in inodes:
                    address, port = words[1].split(":")
                    found[address_of(address), int(port, 16)] = inodes[words[9]]
    return found


def call(address, port):
    """The connection; None if nobody answers."""
    try:
        return socket.create_connection((address, port), timeout=2)
    except OSError:
        return None


def disturb(folder, failures):
    """Calls every listener and says what nobody understands. @returns who listens"""
    noise = random.Random(1)
    kept = []
    found = listeners(folder)
    for (address, port), names in found.items():
        on_loopback = address.startswith("127.") or address == "::1"
        connection = call(address if address not in ("0.0.0.0", "::") else "127.0.0.1", port)
        if connection and not on_loopback:
            failures.append(f"{sorted(names)} listens at {address}:{port}, and answers")
        if connection:
            connection.sendall(noise.randbytes(300))
            kept.append(connection)
    time.sleep(1)
    for connection in kept:
        connection.close()
    return set().union(*found.values())


def run(folder, command, expected=(), failures=None):
    """What a training reports, disturbed once it trains if `failures` are given.
    @param expected  programs that listen"""
    environment = {**os.environ, "MESHPLAN_TEST_JOB": folder}
    with open(f"{folder}/stderr", "w") as stderr:
        job = subprocess.Popen(command, cwd=folder, env=environment, stderr=stderr,
                               stdout=subprocess.PIPE, text=True)
    try:
        if failures is not None:
            end = time.time() + 60
            log = f"{folder}/log.jsonl"
            while time.time() < end and '"step"' not in read(log):
                time.sleep(0.05)
            names = disturb(folder, failures)
            if names != set(expected):
                failures.append(f"who listens: {sorted(names)}, not {sorted(expected)}")
            if job.poll() is not None:
                failures.append("the job had ended before all its ports were called")
        output = job.communicate(timeout=300)[0]
    finally:
        job.kill()
    if job.returncode != 0:
        (failures if failures is not None else []).append(
            f"exit code {job.returncode}:\n{read(folder + '/stderr')}")
        return None
    return json.loads(output)


def read(file):
    try:
        with open(file) as opened:
            return opened.read()
    except OSError:
        return ""


def main():
    meshplan, mpiexec, tests = sys.argv[1:]
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["bash", "-c", f"fail() {{ echo $1; exit 1; }}; . {tests}/cli/tiny_training.sh; "
                        "make_plan tp2.json --tp 2"],
                       cwd=folder, env={**os.environ, "meshplan": meshplan}, check=True)
        def training_of(steps):
            return [meshplan, "run", "tp2.json", "--data", "text.txt", "--steps", str(steps),
                    "--json", "--log", "log.jsonl"]
        times = run(folder, training_of(200))["step_times_s"]
        training = training_of(int(SECONDS_OF_TRAINING * len(times) / sum(times)))
        os.remove(f"{folder}/log.jsonl")
        undisturbed = run(folder, training)
        under_mpi = {"mpiexec", "hydra_pmi_proxy", "meshplan"}  # MPI's transport is in the ranks
        for name, command, expected in (
                ("meshplan run", training, under_mpi),
                ("an mpiexec of the user's", [mpiexec, "-n", "2", *training], under_mpi),
                ("torchrun's variables", [f"{tests}/tcp_ranks.sh", "2", *training], ())):
            os.remove(f"{folder}/log.jsonl")
            of_this = []
            disturbed = run(folder, command, expected, of_this)
            if not disturbed or disturbed["losses"] != undisturbed["losses"]:
                of_this.append("the losses are others than without the calls")
            failures += [f"{name}: {failure}" for failure in of_this]
    for failure in failures:
        print(f"FAILED: {failure}")
    print(f"{len(failures)} failures")
    return len(failures)


sys.exit(main())
