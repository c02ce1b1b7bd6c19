#!/usr/bin/env python3
"""Configurations of other stacks with bytes that are no UTF-8: foreign_bytes_test.py MESHPLAN EXAMPLES

In names, values and comments, to every command that reads them. Each is refused with file and place
or works; JSON is UTF-8; no library's words come out. And inputs that are far too large or deep.
"""
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAD = [b"\xe9", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xe2\x82", b"\x00"]
LEAKS = re.compile(rb"json\.exception|UTF-8 byte at|what\(\)|std::|terminate|internal error")
MODEL = ["--model", "llama3-8b", "--gpus", "8"]
COMMANDS = [["import"], ["import", "--json"], ["simulate", "--json", "--cluster", "dgx-h100"],
            ["check", "--json", "--cluster", "dgx-h100", "--for", "torchtitan"],
            ["export", "--to", "nanotron", "--out", "out", "--force"]]
SCRIPT = b"""# comment
NAME=run
torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 512 --seq-length 512 \\
  --num-attention-heads 8 --max-position-embeddings 512 --micro-batch-size 1 --vocab-size 1024 \\
  --global-batch-size 8 --save $NAME --lr 1e-4 --bf16
"""
PYTHON = b"""# torchtitan
def mine():
    name = "it"
    return Trainer.Config(
        model_spec=model_registry("8B"), dump_folder="out",
        parallelism=ParallelismConfig(data_parallel_shard_degree=8),
        training=TrainingConfig(max_context_length=2048))
"""
MOST_BYTES, MOST_SECONDS = 1 << 30, 60  # seconds: what hangs, not what is slow


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


class Checker:
    def __init__(self, meshplan, folder):
        self.meshplan, self.folder, self.faults, self.runs = meshplan, folder, [], 0
        probe = subprocess.run([meshplan, "--version"], capture_output=True, preexec_fn=limited)
        self.limit = limited if probe.returncode == 0 else None
        if self.limit is None:
            print("memory is not limited: a sanitizer's own does not start in 1 GiB of addresses")

    def run(self, words):
        self.runs += 1
        begin = time.monotonic()
        done = subprocess.run([self.meshplan, *words], cwd=self.folder, capture_output=True,
                              timeout=2 * MOST_SECONDS, preexec_fn=self.limit)
        if time.monotonic() - begin > MOST_SECONDS:
            self.fault(words, "took too long", done)
        return done

    def fault(self, words, what, done):
        self.faults.append(f"{words}: {what}: {(done.stderr or done.stdout)[:300]}")

    def check(self, file, content, extra, what, must_place=True):
        (self.folder / file).write_bytes(content)
        for command, *options in COMMANDS:
            words = [command, file, *options, *extra]
            done = self.run(words)
            if done.returncode not in (0, 2, 3):
                self.fault(words, f"{what}: exit code {done.returncode}", done)
            elif LEAKS.search(done.stdout + done.stderr):
                self.fault(words, f"{what}: a library's words", done)
            elif done.returncode == 2 and must_place and command != "export" and not re.search(
                    re.escape(file).encode() + rb":\d+", done.stderr):
                self.fault(words, f"{what}: no place", done)
            try:
                (done.stdout + done.stderr).decode()
                if "--json" in words and done.returncode == 0:
                    json.loads(done.stdout)
            except ValueError:
                self.fault(words, f"{what}: its output is not UTF-8, or not JSON", done)


def main():
    meshplan, examples = (Path(argument).resolve() for argument in sys.argv[1:])
    files = {"a.toml": ((examples / "llama3_70b.toml").read_bytes(), ["--gpus", "64"]),
             "a.yaml": ((examples / "nanotron.yaml").read_bytes(), []),
             "b.yaml": ((examples / "accelerate.yaml").read_bytes(), MODEL),
             "ds.json": ((examples / "ds_config.json").read_bytes().replace(b'"auto"', b"1"), MODEL),
             "a.py": (PYTHON, MODEL), "a.sh": (SCRIPT, [])}
    with tempfile.TemporaryDirectory() as work:
        checker = Checker(meshplan, Path(work))
        for name, (content, extra) in files.items():
            lines = content.split(b"\n")
            for turn, bad in enumerate(BAD):
                # A line of its own for each kind of byte, and a place in it.
                at = (turn * 7 + 3) % (len(lines) - 1)
                cut = min(len(lines[at]), 4 + 5 * turn)
                lines_with = [*lines[:at], lines[at][:cut] + bad + lines[at][cut:], *lines[at + 1:]]
                checker.check(name, b"\n".join(lines_with), extra, f"{bad} in line {at + 1}")
            if not name.endswith(".json"):
                checker.check(name, b"# caf\xe9\n" + content, extra, "comment")
            (Path(work) / name).unlink()
        # Bash does not mind what a comment holds, nor do we.
        (Path(work) / "a.sh").write_bytes(b"# caf\xe9\n" + SCRIPT)
        done = checker.run(["import", "a.sh", "--json"])
        if done.returncode != 0:
            checker.fault("a comment in Latin-1", "is refused", done)
        done = checker.run(["import", "a.sh", "--env", b"X=\xe9"])
        if done.returncode != 2:
            checker.fault("--env", "takes what is no UTF-8", done)
        bombs = {"bomb.yaml": b"distributed_type: FSDP\na0: &a0 [x, x, x, x, x, x, x, x]\n" + b"".join(
                     b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 8)) for i in range(1, 12)),
                 "deep.yaml": b"distributed_type: FSDP\na: " + b"[" * 50000,
                 "deep.toml": b"[parallelism]\na = " + b"[" * 50000,
                 "deep.json": b'{"zero_optimization": ' + b"[" * 50000,
                 "deep.py": b"# torchtitan\ndef f():\n    return Trainer.Config(a=" + b"(" * 50000,
                 "deep.sh": b"torchrun pretrain_gpt.py " + b"$(" * 50000,
                 "huge.yaml": b"distributed_type: FSDP\n" + b"a: 1\n" * 2000000,
                 "huge.sh": b"torchrun pretrain_gpt.py \\\n" + b"--bf16 \\\n" * 1000000}
        for name, content in bombs.items():
            checker.check(name, content, MODEL, "a bomb", must_place=False)
            (Path(work) / name).unlink()
        print("\n".join(checker.faults) or f"{checker.runs} runs")
        sys.exit(1 if checker.faults else 0)


if __name__ == "__main__":
    main()
