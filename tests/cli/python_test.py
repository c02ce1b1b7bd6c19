#!/usr/bin/env python3
"""The Python package answers what the command does: the same numbers, the same messages.

    PYTHONPATH=build/ci/cli/python tests/cli/python_test.py MESHPLAN TABLE.csv
"""
import inspect
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import meshplan

MESHPLAN, TABLE = sys.argv.pop(1), sys.argv.pop(1)
SMALL = {"model": "tiny-llama", "cluster": "cpu-host", "gpus": 4, "global_batch": 16, "seq_len": 128}
GPUS = {"model": "llama3-8b", "cluster": "dgx-h100", "gpus": 16, "global_batch": 64}


def run(*words):
    return subprocess.run([MESHPLAN, *words], capture_output=True, text=True)


def printed(*words):
    """What the command prints with --json, byte for byte, as Python reads it."""
    done = run(*words, "--json")
    assert done.returncode in (0, 3) or done.stdout, done.stderr  # `check` ends with 2 where it answers no
    return json.loads(done.stdout)


def complaint(*words):
    """The command's message, without its name and the hint at its help."""
    done = run(*words)
    assert done.returncode in (1, 2), f"{words}: exit code {done.returncode}"
    return re.sub(r"\nsee meshplan \w+ --help$", "", done.stderr.removeprefix("meshplan: ").rstrip("\n"))


class Answers(unittest.TestCase):
    def test_version(self):
        self.assertEqual("meshplan " + meshplan.__version__, run("--version").stdout.strip())

    def test_plan(self):
        for keywords, words in (
                (SMALL, "--model tiny-llama --cluster cpu-host --gpus 4 --global-batch 16 --seq-len 128"),
                ({**SMALL, "tp": 2, "pp": 2, "sp": False, "micro_batch": 1, "schedule": "1f1b", "top": 2},
                 "--model tiny-llama --cluster cpu-host --gpus 4 --global-batch 16 --seq-len 128 --tp 2 --pp 2 --no-sp "
                 "--micro-batch 1 --schedule 1f1b --top 2"),
                ({**GPUS, "pp": 2, "layers_per_stage": [17, 15], "sp": True, "tp": 8, "offload_optimizer": True},
                 "--model llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --pp 2 --layers-per-stage 17,15 --sp "
                 "--tp 8 --offload-optimizer"),
                ({**GPUS, "software": "torchtitan", "memory_reserve": 10},
                 "--model llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --software torchtitan "
                 "--memory-reserve 10"),
                ({"model": "llama3-70b", "cluster": "dgx-h100", "gpus": 8, "global_batch": 8},
                 "--model llama3-70b --cluster dgx-h100 --gpus 8 --global-batch 8")):
            with self.subTest(words):
                self.assertEqual(meshplan.plan(**keywords), printed("plan", *words.split()))

    def test_simulate(self):
        words = "--model llama3-8b --cluster dgx-h100 --tp 2 --pp 2 --dp 4 --global-batch 64".split()
        keywords = {"model": "llama3-8b", "cluster": "dgx-h100", "tp": 2, "pp": 2, "dp": 4, "global_batch": 64}
        self.assertEqual(meshplan.simulate(**keywords), printed("simulate", *words))
        self.assertEqual(meshplan.simulate(**keywords, software="nanotron"),
                         printed("simulate", *words, "--software", "nanotron"))
        self.assertEqual(meshplan.simulate(**keywords, memory_timeline=True, all_ranks=True),
                         printed("simulate", *words, "--memory-timeline", "--all-ranks"))

    def test_a_plan_is_a_file_or_a_dict(self):
        best = meshplan.plan(**SMALL)["ranked"][0]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "plan.json"
            path.write_text(json.dumps(best["plan"]))
            from_file = meshplan.simulate(path)
            self.assertEqual(from_file, printed("simulate", str(path)))
            self.assertEqual(from_file["step_time_s"], best["step_time_s"])
            self.assertEqual(meshplan.simulate(str(path)), from_file)
            self.assertEqual(meshplan.simulate(best["plan"]), from_file)
            changed = {"micro_batch_size": 1, "recompute.kind": "full"}
            self.assertEqual(meshplan.simulate(best["plan"], set=changed),
                             printed("simulate", str(path), "--set", "micro_batch_size=1", "--set", "recompute.kind=full"))
            self.assertEqual(meshplan.simulate(best["plan"], set=["micro_batch_size=1"], cluster="cpu-host"),
                             printed("simulate", str(path), "--set", "micro_batch_size=1", "--cluster", "cpu-host"))

    def test_models_and_clusters_are_names_or_dicts(self):
        dicts = {**SMALL, "model": meshplan.model("tiny-llama"), "cluster": meshplan.cluster("cpu-host")}
        self.assertEqual(meshplan.plan(**dicts), meshplan.plan(**SMALL))
        dicts["model"]["num_layers"] *= 2
        self.assertNotEqual(meshplan.plan(**dicts), meshplan.plan(**SMALL))
        self.assertIn("llama3-8b", meshplan.presets()["model"])
        self.assertEqual(meshplan.cluster("dgx-h100"), printed("clusters", "dgx-h100"))
        self.assertEqual(meshplan.schema("result"), json.loads(run("plan", "--schema").stdout))

    def test_check(self):
        plan = meshplan.plan(**GPUS)["ranked"][0]["plan"]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(plan, file)
            file.flush()
            for keywords, words in (({}, ""), ({"for_": "megatron-lm"}, "--for megatron-lm"),
                                    ({"for_": "torchtitan", "set": {"parallel.tp": 16}, "cluster": "dgx-a100"},
                                     "--for torchtitan --set parallel.tp=16 --cluster dgx-a100")):
                with self.subTest(words):
                    expected = printed("check", file.name, *words.split())
                    self.assertEqual(meshplan.check(plan, **keywords), expected)
                    self.assertEqual(meshplan.check(file.name, **keywords), expected)
            self.assertTrue(meshplan.check(plan)["valid"])
            self.assertFalse(meshplan.check(plan, set={"parallel.tp": 3})["valid"])

    def test_validate(self):
        self.assertEqual(meshplan.validate(table=TABLE), printed("validate", "--table", TABLE))


class Refusals(unittest.TestCase):
    def test_messages_are_the_commands(self):
        small = "--model tiny-llama --cluster cpu-host --gpus 4 --global-batch 16 --seq-len 128".split()
        for function, keywords, words in (
                ("plan", {}, []),
                ("plan", {**SMALL, "model": "tiny-lama"}, ["--model", "tiny-lama", *small[2:]]),
                ("plan", {**SMALL, "tp": 3}, [*small, "--tp", "3"]),
                ("plan", {**SMALL, "tp": "three"}, [*small, "--tp", "three"]),
                ("plan", {**SMALL, "schedule": "1f2b"}, [*small, "--schedule", "1f2b"]),
                ("plan", {**SMALL, "memory_reserve": 100}, [*small, "--memory-reserve", "100"]),
                ("plan", {**SMALL, "software": "megatron"}, [*small, "--software", "megatron"]),
                ("plan", {**SMALL, "model": {"schema_version": 1}}, ["--model", '{"schema_version": 1}', *small[2:]]),
                ("simulate", {"plan": "no-such-plan.json"}, ["no-such-plan.json"]),
                ("simulate", {"plan": "no-such-plan.json", "tp": 2}, ["no-such-plan.json", "--tp", "2"]),
                ("simulate", {**SMALL, "tp": 3}, [*small, "--tp", "3"]),
                ("check", {}, []),
                ("check", {"plan": "no-such-plan.json"}, ["no-such-plan.json"]),
                ("validate", {}, [])):
            with self.subTest(words):
                with self.assertRaises(meshplan.ConfigError) as raised:
                    getattr(meshplan, function)(**keywords)
                self.assertEqual(str(raised.exception), complaint(function, *words))

    def test_kinds_of_errors(self):
        self.assertTrue(issubclass(meshplan.ConfigError, ValueError))
        self.assertTrue(issubclass(meshplan.ConfigError, meshplan.Error))
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises((meshplan.ConfigError, meshplan.IoError)) as raised:
                meshplan.simulate(folder)
            self.assertEqual(str(raised.exception), complaint("simulate", folder))
        with self.assertRaisesRegex(TypeError, r"plan\(\) got an unexpected keyword argument 'modle'; did you mean 'model'"):
            meshplan.plan(modle="tiny-llama")
        with self.assertRaises(TypeError):
            meshplan.plan("tiny-llama")


class Citizenship(unittest.TestCase):
    LONG = {"model": "mixtral-8x7b", "cluster": "dgx-h100", "gpus": 512, "global_batch": 4096, "threads": 1}

    def test_other_threads_run_during_a_search(self):
        ticks, done = [0], threading.Event()

        def tick():
            while not done.wait(0.001):
                ticks[0] += 1

        clock = threading.Thread(target=tick)
        clock.start()
        before = ticks[0]
        meshplan.plan(**GPUS)
        during = ticks[0] - before
        done.set()
        clock.join()
        self.assertGreater(during, 10)

    def test_an_interrupt_ends_a_search(self):
        ends = []  # of the search itself: did it return, or raise?

        def note(_frame, event, function):
            if event.startswith("c_") and getattr(function, "__name__", "") == "ask":
                ends.append(event)

        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            sys.setprofile(note)
            meshplan.plan(**self.LONG)
        sys.setprofile(None)
        self.assertEqual(ends, ["c_call", "c_exception"])

    def test_searches_run_side_by_side(self):
        found = [None] * 4

        def search(i):
            found[i] = meshplan.plan(**{**SMALL, "tp": 1 + i % 2})

        threads = [threading.Thread(target=search, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found[0], found[2])
        self.assertEqual(found[1], found[3])
        self.assertNotEqual(found[0], found[1])

    def test_signatures_name_the_options(self):
        # What concerns files and text alone.
        not_asked = {"help", "json", "explain", "out", "schema", "plan-schema", "trace", "chrome", "kineto", "timeline", "memory-svg",
                     "program",
                     "stage", "no-sp", "no-deterministic", "all", "why-not", "tokens", "price-per-gpu-hour", "gpu-watts"}
        for name in ("plan", "simulate", "check"):
            options = set(re.findall(r"^  (?:-., ?)?--([a-z0-9-]+)", run(name, "--help").stdout, re.M)) - not_asked
            keywords = {key.rstrip("_").replace("_", "-") for key in inspect.signature(getattr(meshplan, name)).parameters}
            self.assertEqual(options, keywords - {"plan"})
        self.assertRegex(meshplan.plan.__doc__, r"global_batch: sequences of one optimizer step")

    def test_types(self):
        mypy = shutil.which("mypy")
        if not mypy:
            self.skipTest("no mypy")
        stub = os.path.dirname(os.path.dirname(meshplan.__file__))
        cases = {"meshplan.plan(model='m', gpus=8, sp=True, layers_per_stage=[1, 2])['ranked']": 0,
                 "meshplan.plan(gpus='8')": 1, "meshplan.plan(recompute='all')": 1, "meshplan.plan(modle='m')": 1,
                 "meshplan.simulate({}, set={'parallel.tp': 2})": 0, "meshplan.simulate(3)": 1}
        for line, code in cases.items():
            done = subprocess.run([mypy, "--strict", "--cache-dir", os.devnull, "-c", f"import meshplan\n{line}"],
                                  capture_output=True, text=True, env={**os.environ, "MYPYPATH": stub})
            self.assertEqual(done.returncode, code, line + "\n" + done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
