#!/usr/bin/env python3
"""Recipes of Megatron-Bridge beside our choice for the same work on Megatron-Core.

    bench/planner/stack_recipes.py build/release/cli/meshplan CHECKOUT [--only deepseek_v3] [--gpus h100,gb200]

CHECKOUT is one of Megatron-Bridge. Each performance recipe whose name tells GPUs and machine is imported, predicted as it
is, and searched anew with its model, machine, batch, precision and settings of the stack. Both sides are priced with one
model, so the ratio says where that model would have chosen otherwise, and is no validation of step times.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

MACHINES = {"h100": "dgx-h100", "b200": "dgx-b200", "gb200": "gb200-nvl72"}
NAME = re.compile(r"def (\w+_(\d+)gpu_([a-z0-9]+)_\w+_config)\(")


class Failed(Exception):
    pass


def answer(command):
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1, 3):
        raise Failed(run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"exit {run.returncode}")
    return run


def degrees(plan):
    p = plan["parallel"]
    text = " ".join(f"{k}{p[k]}" for k in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp") if p.get(k, 1) > 1)
    recompute = plan["recompute"]["kind"]
    return f"{text} mbs{plan['micro_batch_size']}" + ("" if recompute == "none" else f" {recompute}")


def compare(meshplan, recipe, gpus, cluster, folder):
    """@returns seconds, plan and verdict of the recipe, seconds and plan of our choice (none: nothing fits)"""
    file = folder / "plan.json"
    answer([meshplan, "import", recipe, "--cluster", cluster, "--gpus", str(gpus), "--out", str(file)])
    plan = json.loads(file.read_text())
    own = json.loads(answer([meshplan, "simulate", str(file), "--json"]).stdout)
    model = folder / "model.json"
    model.write_text(json.dumps(plan["model"]))
    work, stack = plan["workload"], dict(plan["stack"])
    command = [meshplan, "plan", "--json", "--model", str(model), "--cluster", cluster, "--gpus", str(gpus),
               "--global-batch", str(work["global_batch_size"]), "--seq-len", str(work["seq_len"]),
               "--precision", "fp8" if work.get("fp8", "none") != "none" else work["precision"],
               "--software", stack.pop("software")]
    for name, value in stack.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        command += ["--stack", f"{name}={text}"]
    ours = json.loads(answer(command).stdout)
    best = ours["ranked"][0] if ours.get("feasible") else None
    return own, plan, best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("meshplan")
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--only", default="", help="recipes whose name holds this")
    parser.add_argument("--gpus", default=",".join(MACHINES), help="machines, of " + ", ".join(MACHINES))
    arguments = parser.parse_args()
    wanted = arguments.gpus.split(",")
    ratios, refused, misfits = [], 0, 0
    print(f"{'recipe':58} {'as it is':>9} {'':4} {'plan':42} {'ours':>9} {'ratio':>6}  our plan")
    for file in sorted(arguments.checkout.glob("src/megatron/bridge/perf_recipes/*/*/*.py")):
        for name, gpus, machine in NAME.findall(file.read_text()):
            if machine not in wanted or machine not in MACHINES or arguments.only not in name:
                continue
            if "_peft_" in name:  # the search trains all parameters
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    own, plan, best = compare(arguments.meshplan, f"{file}:{name}", int(gpus), MACHINES[machine],
                                              pathlib.Path(folder))
                except Failed as error:
                    refused += 1
                    print(f"{name[:-7]:58} refused: {str(error)[-120:]}", file=sys.stderr, flush=True)
                    continue
            fits = own.get("fits", True)
            misfits += not fits
            seconds = own["step_time_s"]
            line = f"{name[:-7]:58} {seconds:8.2f}s {'' if fits else 'no':4} {degrees(plan):42}"
            if best is None:
                print(line + "   none fits", flush=True)
                continue
            ratio = seconds / best["step_time_s"]
            ratios.append(ratio)
            print(f"{line} {best['step_time_s']:8.2f}s {ratio:6.2f}  {degrees(best['plan'])}", flush=True)
    ratios.sort()
    if ratios:
        quantile = lambda q: ratios[min(len(ratios) - 1, int(q * len(ratios)))]  # noqa: E731
        print(f"\n{len(ratios)} recipes, {refused} refused, {misfits} said not to fit; as long as our choice: "
              f"{ratios[0]:.2f} at least, {quantile(0.25):.2f}, {quantile(0.5):.2f}, {quantile(0.75):.2f} at quarters, "
              f"{ratios[-1]:.2f} at most; {sum(r <= 1.1 for r in ratios)} within 10 %")


if __name__ == "__main__":
    main()
