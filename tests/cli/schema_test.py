#!/usr/bin/env python3
"""What the command prints for programs obeys the schemas that it prints, and little else does.

    tests/cli/schema_test.py MESHPLAN
"""
import copy
import json
import subprocess
import sys
import tempfile
import unittest

from json_schema import faults

try:
    import jsonschema  # Debian's python3-jsonschema: a second opinion, where it is installed
except ImportError:
    jsonschema = None

MESHPLAN = sys.argv.pop(1)


def said(*words, codes=(0, 3)):
    done = subprocess.run([MESHPLAN, *words], capture_output=True, text=True)
    assert done.returncode in codes, f"{words}: exit code {done.returncode}: {done.stderr}"
    return json.loads(done.stdout)


def measured_cluster():
    """A cluster with one measured message, far smaller than what a plan sends."""
    cluster = said("clusters", "cpu-host", "--json")
    cluster["collectives"] = [{"op": "all_reduce", "group_size": 2, "ranks_on_host": 2, "bytes": 64, "seconds": 1e-5}]
    return cluster


def paths_of(value, path=()):
    """The way to each object of a JSON value."""
    if isinstance(value, dict):
        yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths_of(item, path + (key,))


def at(value, path):
    for key in path:
        value = value[key]
    return value


class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.result_schema = said("plan", "--schema")
        cls.plan_schema = said("plan", "--plan-schema")
        small = ["--cluster", "cpu-host", "--gpus", "2", "--global-batch", "8", "--seq-len", "128", "--json"]
        cls.failures_schema = said("simulate", "--schema")
        job = ["--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "32", "--global-batch", "64", "--tp", "8", "--dp", "4"]
        cls.failures = said("simulate", *job, "--failures", "--trials", "3", "--json")
        cls.results = {
            "feasible": said("plan", "--model", "tiny-llama", *small),
            "experts": said("plan", "--model", "tiny-moe", *small),
            "GPUs": said("plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch", "64",
                         "--json"),
            "failures": said("plan", *job[:8], "--mtbf", "50000h", "--json"),
            "other software": said("plan", "--software", "torchtitan", "--model", "llama3-8b", "--cluster", "dgx-h100",
                                   "--gpus", "8", "--global-batch", "64", "--json"),
            "infeasible": said("plan", "--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch",
                               "8", "--json", codes=(3,)),
        }
        small[1] = json.dumps(measured_cluster())
        cls.results["extrapolated"] = said("plan", "--model", "tiny-llama", "--dp", "2", *small)

    def obeys(self, value, schema, obeys=True):
        found = faults(value, schema)
        self.assertEqual(not found, obeys, "\n".join(found[:5]))
        if jsonschema:
            self.assertEqual(jsonschema.Draft202012Validator(schema).is_valid(value), obeys, "jsonschema disagrees")

    def test_failures_obey_their_schema(self):
        self.obeys(self.failures, self.failures_schema)
        single = said("simulate", "--model", "tiny-llama", "--cluster", "cpu-host", "--dp", "2", "--global-batch", "4", "--seq-len", "128",
                      "--failures", "--trials", "2", "--json")
        self.obeys(single, self.failures_schema)
        self.assertIsNone(single["checkpoints"][1]["played"])  # a partner needs a second node
        parts = self.failures["played"]["parts"]
        self.assertAlmostEqual(sum(parts.values()), 1)
        self.assertAlmostEqual(self.failures["effective_step_s"] * parts["useful"], self.failures["step_time_s"])
        broken = copy.deepcopy(self.failures)
        del broken["played"]["parts"]["lost"]
        self.obeys(broken, self.failures_schema, False)

    def test_schemas_are_schemas(self):
        if not jsonschema:
            self.skipTest("no python3-jsonschema")
        for schema in (self.result_schema, self.plan_schema):
            jsonschema.Draft202012Validator.check_schema(schema)

    def test_results_obey_their_schema(self):
        self.assertFalse(self.results["infeasible"]["feasible"])
        self.assertTrue(self.results["infeasible"]["suggestions"])
        self.assertTrue(self.results["extrapolated"]["extrapolations"])
        for name, result in self.results.items():
            with self.subTest(name):
                self.obeys(result, self.result_schema)

    def test_plan_files_obey_theirs(self):
        for name in ("feasible", "experts", "GPUs", "other software", "extrapolated"):
            with self.subTest(name):
                self.obeys(self.results[name]["ranked"][0]["plan"], self.plan_schema)
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            said("plan", "--model", "tiny-llama", "--cluster", "cpu-host", "--gpus", "2", "--global-batch", "8",
                 "--seq-len", "128", "--json", "--out", file.name)
            with open(file.name, encoding="utf-8") as written:
                self.obeys(json.load(written), self.plan_schema)

    def test_pages_obey_theirs(self):
        schema = said("report", "--schema")
        with tempfile.NamedTemporaryFile(suffix=".json", mode="w") as file:
            json.dump(self.results["feasible"]["ranked"][0]["plan"], file)
            file.flush()
            page = said("report", file.name, "--search", "--json")
        self.obeys(page, schema)
        for path in ((), ("mesh",), ("memory", "stages", 0), ("timelines", 0, "rows", 0), ("search", "cells", 0)):
            more = copy.deepcopy(page)
            at(more, path)["surprise"] = 1
            with self.subTest(path):
                self.obeys(more, schema, False)

    def test_nothing_is_left_undeclared(self):
        """In each object of a result, a key too many and a key too few break the schema."""
        result = self.results["feasible"]
        result = {**result, "ranked": result["ranked"][:1], "alternatives": result["alternatives"][:1],
                  "rejections": result["rejections"][:1]}
        self.assertEqual(faults(result, self.result_schema), [])
        for path in paths_of(result):
            if "model" in path or "cluster" in path or (path and path[-1] == "peak_tflop_per_s"):
                continue  # their own files' forms, which have optional keys
            with self.subTest(path):
                more = copy.deepcopy(result)
                at(more, path)["surprise"] = 1
                self.obeys(more, self.result_schema, False)
        for key in ("feasible", "counts", "ranked", "rejections"):
            less = {name: value for name, value in result.items() if name != key}
            self.obeys(less, self.result_schema, False)
        for key in result["ranked"][0]:
            less = copy.deepcopy(result)
            del less["ranked"][0][key]
            self.obeys(less, self.result_schema, False)

    def test_wrong_plans_break_it(self):
        plan = self.results["feasible"]["ranked"][0]["plan"]
        for path, value in ((("parallel", "tp"), 0), (("schedule",), "1f2b"), (("parallel", "tp"), "2"),
                            (("workload", "seq_len"), None), (("model", "num_layers"), -1), (("cluster", "name"), 3),
                            (("cluster", "name"), "a" * 513)):
            wrong = copy.deepcopy(plan)
            at(wrong, path[:-1])[path[-1]] = value
            with self.subTest(path):
                self.obeys(wrong, self.plan_schema, False)

    def test_presets_obey_the_schemas_of_models_and_clusters(self):
        models = said("models", "--schema")
        for preset in said("models", "--json")["models"]:
            self.obeys(said("models", preset["name"], "--json")["spec"], models)
        clusters = said("clusters", "--schema")
        for preset in said("clusters", "--json")["clusters"]:
            self.obeys(preset, clusters)


if __name__ == "__main__":
    unittest.main()
