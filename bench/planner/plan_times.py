#!/usr/bin/env python3
"""How long `plan` takes from its first line to its last, with all that it shows played, and what it covered meanwhile.

    bench/planner/plan_times.py [RUNS]        default: 5; MESHPLAN_PRESET=ci for another build than release

For each search: the median time of RUNS runs on two threads beside the time that it is meant to stay under, if there is
one; processor time and memory of that run; plans of the space ("covered": priced, or turned down by a rule, by memory
or by a bound), what turned them down, and how many were priced to the end. "of Calculon's" compares the plans covered
in a second of processor time with what Calculon priced on one of its cores (Isaev et al. 2023: 101 to 398
configurations a second over GPT-3 175B's spaces): the spaces differ, so it is a ratio of work done, not of equal work.
"""
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

CALCULON_PER_CORE = (101, 398)
SEARCHES = [  # name, aim in seconds, flags of plan
    ("Llama 3 8B on 64 H100s", 0.3, "--model llama3-8b --gpus 64 --global-batch 512 --seq-len 8192"),
    ("GPT-3 175B on 1,024 H100s", 1, "--model gpt3-175b --gpus 1024 --global-batch 1536 --seq-len 2048"),
    ("the same, with its offload tier", 5, "--model gpt3-175b --gpus 1024 --global-batch 1536 --seq-len 2048 --space offload"),
    ("Llama 3.1 405B on 16,384 H100s", 2, "--model llama3.1-405b --gpus 16384 --global-batch 2048 --seq-len 8192"),
    ("DeepSeek-V3 on 2,048 H100s", 3, "--model deepseek-v3 --gpus 2048 --global-batch 15360 --seq-len 4096"),
    ("Llama 3.1 405B on 512 GB200s", None,
     "--model llama3.1-405b --cluster gb200-nvl72 --gpus 512 --global-batch 512 --seq-len 8192"),
    ("GPT-3 175B on 1,024 H100s, Megatron-LM", None,
     "--model gpt3-175b --gpus 1024 --global-batch 1536 --seq-len 2048 --software megatron-core"),
    ("DeepSeek-V3 on 2,048 H100s, Megatron-LM", None,
     "--model deepseek-v3 --gpus 2048 --global-batch 15360 --seq-len 4096 --software megatron-core"),
]


def run(command):
    """@returns its JSON, seconds, seconds of processor time, and MiB at most."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"plan_times: {' '.join(command)}: exit code {process.returncode}")
    return json.loads(text), elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    root = pathlib.Path(__file__).resolve().parents[2]
    preset = os.environ.get("MESHPLAN_PRESET", "release")
    meshplan = root / "build" / preset / "cli" / "meshplan"
    if not meshplan.exists():
        sys.exit(f"plan_times: no {meshplan}; scripts/setup.sh {preset} meshplan builds it")
    print("| search | `plan` | aim | processor | memory | plans covered | break a rule | do not fit | bounded | priced "
          "| covered/s and core | of Calculon's |")
    print("| --- " + "| ---: " * 11 + "|")
    broken = {}  # by search: enumerated plans by the rule that they break
    for name, aim, flags in SEARCHES:
        command = [str(meshplan), "plan", "--threads", "2", "--json", *flags.split()]
        if "--cluster" not in command:
            command += ["--cluster", "dgx-h100"]
        measured = [run(command) for _ in range(runs)]
        measured.sort(key=lambda one: one[1])
        answer, _, processor, memory = measured[len(measured) // 2]
        seconds = statistics.median(one[1] for one in measured)
        counts = answer["counts"]
        rules = collections.Counter()
        for rejection in answer["rejections"]:
            rules[rejection["rule"]] += rejection["plans"]
        broken[name] = rules.most_common()
        total = counts["total"]
        share = lambda key: f"{100 * counts[key] / total:.0f} %"
        rate = total / processor
        slow, fast = (rate / one for one in CALCULON_PER_CORE)
        print(f"| {name} | {seconds:.2f} s | {'' if aim is None else f'{aim} s'} | {processor:.2f} s | {memory:.0f} MiB "
              f"| {total:,} | {share('broke_a_rule')} | {share('did_not_fit')} | {share('bounded')} "
              f"| {counts['ranked']:,} | {rate:,.0f} | {fast:,.0f} to {slow:,.0f} times |", flush=True)
    print("\nWhat turned down the enumerated plans, whose variants (schedules, ZeRO beside a pipeline, ...) share their fate:")
    for name, rules in broken.items():
        print(f"- {name}: " + ", ".join(f"{rule} {plans:,}" for rule, plans in rules))


if __name__ == "__main__":
    main()
