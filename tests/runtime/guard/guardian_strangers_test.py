#!/usr/bin/env python3
"""A stranger at the port of a guardian learns nothing that it could use, and cannot end the job.

Usage: guardian_strangers_test.py PATH_OF_failure_victim MPIEXEC
"""
import os
import re
import socket
import subprocess
import sys
import time

CHALLENGE_BYTES = 40  # magic and nonce: all that is said to somebody who has proved nothing


def listening_ports(token):
    """Ports of the guardians whose command line holds the token."""
    inodes = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                if token.encode() not in file.read():
                    continue
            with open(f"/proc/{process}/comm") as file:
                if file.read().strip() != "meshplan-guard":
                    continue
            for name in os.listdir(f"/proc/{process}/fd"):
                found = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{process}/fd/{name}"))
                if found:
                    inodes.add(found.group(1))
        except OSError:
            continue  # it has ended
    ports = set()
    with open("/proc/net/tcp") as table:
        for words in map(str.split, list(table)[1:]):
            if words[3] == "0A" and words[9] in inodes:
                ports.add(int(words[1].split(":")[1], 16))
    return ports


def heard_by(stranger, seconds):
    stranger.settimeout(0.2)
    heard = b""
    end = time.time() + seconds
    while time.time() < end:
        try:
            part = stranger.recv(65536)
            if not part:
                break
            heard += part
        except TimeoutError:
            pass
    return heard


def main():
    victim, mpiexec = sys.argv[1:]
    token = f"job-of-strangers-{os.getpid()}"
    job = subprocess.Popen([mpiexec, "-n", "4", victim, "spin", "3", "8", "many-machines", token],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    failures = []
    try:
        ports = set()
        end = time.time() + 30
        while not ports and time.time() < end:
            ports = listening_ports(token)
            time.sleep(0.05)
        if len(ports) != 1:
            failures.append(f"one guardian listens, not those at {ports}")
        strangers = [socket.create_connection(("127.0.0.1", port)) for port in ports
                     for _ in range(20)]
        for stranger in strangers[:3]:
            heard = heard_by(stranger, 1.5)
            if len(heard) != CHALLENGE_BYTES:
                failures.append(f"a stranger was told {len(heard)} bytes")
        for number, stranger in enumerate(strangers):
            try:
                stranger.sendall(bytes([number]) * 4096)
            except OSError:
                pass  # hung up on, as it should be
        output = job.communicate(timeout=60)[0]
    finally:
        job.kill()
    if not re.search(r"the job ends: hangs: rank 3 on ", output):
        failures.append(f"the job did not end for its own cause:\n{output}")
    for failure in failures:
        print(f"FAILED: {failure}")
    return len(failures)


sys.exit(main())
