#!/usr/bin/env python3
"""Runs `meshplan plan --out` and then `meshplan simulate` on what it wrote.

  plan_holds.py MESHPLAN [--count 300] [--seed 1] [--jobs 1]

Over preset models, clusters, 8 to 4,096 GPUs and two sequence lengths, and over random models: the
plan fits the device and keeps the reserve, its memory is equal to the byte and its step time equal,
no alternative is faster than #1, and exit codes agree.
"""

import argparse
import concurrent.futures
import itertools
import json
import pathlib
import random
import subprocess
import tempfile

CLUSTERS = ["dgx-h100", "dgx-a100", "gb200-nvl72", "h100-generic"]
GPUS = [8, 64, 512, 4096]
PLAN_FITS, NO_PLAN_FITS = 0, 3


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def presets(meshplan):
    """Models that can be planned."""
    listed = json.loads(run(meshplan, "models", "--json")[1])
    return [m["name"] for m in listed["models"] if m["can_be_planned"] and m["parameters"] > 1e8]


def random_model(chance, folder, number):
    heads = chance.choice([8, 12, 16, 32, 40, 64])
    kv_heads = chance.choice([k for k in (1, 2, 4, 8, heads) if heads % k == 0])
    hidden = heads * chance.choice([64, 128])
    spec = {
        "schema_version": 1,
        "name": f"random-{number}",
        "num_layers": chance.randint(4, 96),
        "hidden_size": hidden,
        "ffn_size": hidden * chance.choice([2, 3, 4]),
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_size": hidden // heads,
        "vocab_size": chance.choice([32000, 50257, 128256]),
        "max_positions": 8192,
    }
    if chance.random() < 0.3:
        spec["moe"] = {
            "num_experts": chance.choice([8, 16, 64]),
            "top_k": chance.choice([1, 2, 4]),
            "expert_ffn_size": hidden // chance.choice([1, 2, 4]),
        }
    path = pathlib.Path(folder) / f"random-{number}.json"
    path.write_text(json.dumps(spec))
    return str(path)


def same(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def faults_of(meshplan, case, folder, number):
    model, cluster, gpus, seq_len, batch = case
    plan_file = str(pathlib.Path(folder) / f"plan-{number}.json")
    flags = ["-m", model, "-c", cluster, "-n", str(gpus), "-s", str(seq_len), "-b", str(batch)]
    code, text, errors = run(meshplan, "plan", *flags, "--json", "--threads", "1", "--out", plan_file)
    words = " ".join(["plan"] + flags)
    if code == NO_PLAN_FITS:
        faults = [] if not pathlib.Path(plan_file).exists() else [f"{words}: a plan that does not fit"]
        nearest = json.loads(text)["nearest_miss"]
        if nearest["peak_memory_bytes"] <= nearest["capacity_bytes"] * 0.96:
            faults.append(f"{words}: the nearest miss fits")
        return "no plan fits", faults
    if code != PLAN_FITS:
        return "refused", [] if code == 2 else [f"{words}: exit code {code}: {errors.strip()}"]
    answer = json.loads(text)
    first = answer["ranked"][0]
    code, text, errors = run(meshplan, "simulate", plan_file, "--json")
    if code != PLAN_FITS:
        return "fits", [f"{words}: simulate says {code}: {errors.strip()}"]
    simulated = json.loads(text)
    faults = []
    if simulated["peak_memory_bytes"] != first["peak_memory_bytes"]:
        faults.append(f"memory {first['peak_memory_bytes']}, simulated {simulated['peak_memory_bytes']}")
    if not same(simulated["step_time_s"], first["step_time_s"]):
        faults.append(f"step {first['step_time_s']}, simulated {simulated['step_time_s']}")
    if not simulated["keeps_reserve"]:
        faults.append("breaks the reserve")
    for other in answer["alternatives"]:
        if other["best_plan"] is None:
            continue
        step = other["best_plan"]
        if step["source"] != first["source"]:
            faults.append(f"{other['choice']} is from an {step['source']}, #1 from a {first['source']}")
        if other["slower_by_s"] < 0:
            faults.append(f"{other['choice']} is faster by {-other['slower_by_s']} s")
        parts = sum(step["breakdown_s"][k] - first["breakdown_s"][k] for k in first["breakdown_s"])
        apart = step["step_time_s"] - first["step_time_s"]
        if abs(parts - apart) > 1e-9 * first["step_time_s"]:
            faults.append(f"{other['choice']}: parts sum to {parts}, not to {apart}")
    for plan in answer["ranked"] + [o["best_plan"] for o in answer["alternatives"] if o["best_plan"]]:
        for part, seconds in plan["breakdown_s"].items():
            if seconds < -1e-12 * plan["step_time_s"]:
                faults.append(f"{plan['description']}: {part} takes {seconds} s")
    return "fits", [f"{words}: {fault}" for fault in faults]


def cases_of(meshplan, chance, count, folder):
    grid = list(itertools.product(presets(meshplan), CLUSTERS, GPUS, [2048, 8192]))
    chance.shuffle(grid)
    cases = []
    for number in range(count):
        if number % 4 == 3 or number >= len(grid):
            model, cluster = random_model(chance, folder, number), chance.choice(CLUSTERS)
            gpus, seq_len = chance.choice(GPUS), chance.choice([2048, 8192])
        else:
            model, cluster, gpus, seq_len = grid[number]
        cases.append((model, cluster, gpus, seq_len, max(gpus, 4 * 1024 * 1024 // seq_len)))
    return cases


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("meshplan")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    answers, faults = {}, []
    with tempfile.TemporaryDirectory() as folder:
        cases = cases_of(options.meshplan, chance, options.count, folder)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as workers:
            jobs = [
                workers.submit(faults_of, options.meshplan, case, folder, number)
                for number, case in enumerate(cases)
            ]
            for job in concurrent.futures.as_completed(jobs):
                answer, found = job.result()
                answers[answer] = answers.get(answer, 0) + 1
                for fault in found:
                    print(fault, flush=True)
                faults += found
    print(f"{options.count} combinations: {answers}; {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
