#!/usr/bin/env python3
"""One configuration of another stack, asked about in every way, has one step time, memory and verdict.

    tests/cli/foreign/same_answers_test.py MESHPLAN SOURCES

Asks simulate, check, explain, diff and compare about a foreign file and about the plan that `import` makes of it. The
files: public reports (cases/), the examples of docs/export, the exports that are kept as golden files, and launch
scripts that differ from them by one flag.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

MESHPLAN, SOURCES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
CASES = os.path.join(SOURCES, "tests/cli/foreign/cases")
GOLDEN = os.path.join(SOURCES, "tests/planner/formats/golden")
EXAMPLES = os.path.join(SOURCES, "docs/export/examples")

# What a report left open: the cluster, and the model or the number of GPUs where the file does not say.
REPORTED = {
    "c606.sh": ["--cluster", "a100-40g-generic"],
    "c482a.sh": ["--cluster", "dgx-a100"],
    "c482b.sh": ["--cluster", "dgx-a100"],
    "c5123f.sh": ["--cluster", "dgx-h100"],
    "c4439.sh": ["--cluster", "dgx-b200"],
    "c4439m.sh": ["--cluster", "dgx-b200"],
    "precision_aware.sh": ["--cluster", "dgx-h100"],
    "qm.sh": ["--cluster", "dgx-h100"],
    "q3.json": ["--cluster", "dgx-h100", "--model", "qwen3-30b-a3b", "--gpus", "16"],
    "tt16.toml": ["--cluster", "dgx-h100", "--model", "dsv16.json", "--gpus", "8"],
    "tt16b.toml": ["--cluster", "dgx-h100", "--model", "dsv16.json", "--gpus", "8"],
    "tt8b2.toml": ["--cluster", "h100-96g-hbm2e", "--gpus", "8"],
    "t16.toml": ["--cluster", "dgx-h100", "--model", "qwen3-8b", "--gpus", "4"],
}
# Reports that gave a model and flags.
ON_EIGHT = ["--cluster", "dgx-h100", "--gpus", "8", "--micro-batch", "1", "--zero", "3"]
FLAGGED = [
    ["--model", "q8.json", *ON_EIGHT, "--seq-len", "1048576", "--global-batch", "1", "--cp", "8", "--dp", "1", "--recompute", "full",
     "--software", "nemo-automodel"],
    ["--model", "q32.json", *ON_EIGHT, "--seq-len", "4096", "--global-batch", "8", "--dp", "8", "--freeze", "embedding,layers.0-61",
     "--software", "nemo-automodel"],
]
LLAMA = ["--cluster", "dgx-h100", "--model", "llama3-8b"]
KEPT = [
    (os.path.join(GOLDEN, "llama3-70b.sh"), ["--cluster", "dgx-h100"]),
    (os.path.join(GOLDEN, "deepseek-v3.sh"), ["--cluster", "dgx-h100"]),
    (os.path.join(GOLDEN, "uneven-gpt3.sh"), ["--cluster", "dgx-a100"]),
    (os.path.join(GOLDEN, "nanotron/nanotron.yaml"), ["--cluster", "dgx-h100"]),
    (os.path.join(GOLDEN, "accelerate-megatron/accelerate.yaml"), LLAMA),
    (os.path.join(GOLDEN, "deepspeed-zero3/ds_config.json"), LLAMA + ["--gpus", "16"]),
    (os.path.join(GOLDEN, "deepseek-v3-recipe.py"), ["--cluster", "dgx-h100", "--gpus", "2048"]),
    (os.path.join(EXAMPLES, "llama3_70b.toml"), ["--cluster", "dgx-h100", "--gpus", "64"]),
    (os.path.join(EXAMPLES, "nanotron.yaml"), ["--cluster", "dgx-h100"]),
    (os.path.join(EXAMPLES, "ds_config.json"), LLAMA + ["--gpus", "8"]),
    (os.path.join(EXAMPLES, "accelerate.yaml"), LLAMA),
]
# Each added to, or taken from, two launch scripts of the reports.
ADDED = ["--overlap-grad-reduce", "--tp-comm-overlap", "--overlap-param-gather", "--grad-reduce-in-bf16",
         "--recompute-activations", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
         "--cross-entropy-loss-fusion", "--attention-backend unfused", "--hidden-dropout 0.1", "--micro-batch-size 2",
         "--cuda-graph-impl local", "--fp8-format hybrid --fp8-recipe tensorwise", "--fp8-format e4m3 --fp8-recipe mxfp8",
         "--fp8-format e4m3 --fp8-recipe blockwise --fp8-param-gather", "--use-precision-aware-optimizer --exp-avg-dtype fp8",
         "--attention-backend fused", "--optimizer-cpu-offload --use-precision-aware-optimizer"]
ADDED_OF_EXPERTS = ["--moe-token-dispatcher-type allgather", "--moe-token-dispatcher-type alltoall",
                    "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep",
                    "--overlap-moe-expert-parallel-comm", "--moe-router-force-load-balancing",
                    "--moe-expert-capacity-factor 1 --moe-pad-expert-input-to-capacity"]

# A trainer's file over DeepSpeed, one over FSDP, one with adapters over 4 bits.
WRITTEN = {
    "llamafactory.yaml": """model_name_or_path: meta-llama/Llama-3.1-8B
stage: pt
do_train: true
finetuning_type: full
dataset: c4_demo
template: llama3
cutoff_len: 4096
per_device_train_batch_size: 1
gradient_accumulation_steps: 4
bf16: true
output_dir: out
""",
    "axolotl.yml": """base_model: Qwen/Qwen3-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
sample_packing: true
micro_batch_size: 1
gradient_accumulation_steps: 2
optimizer: adamw_torch_fused
learning_rate: 2e-5
bf16: true
gradient_checkpointing: true
flash_attention: true
fsdp_version: 2
fsdp_config:
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls_to_wrap: Qwen3DecoderLayer
  reshard_after_forward: true
""",
    "qlora.yml": """base_model: NousResearch/Meta-Llama-3-8B
load_in_4bit: true
adapter: qlora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_torch_fused
learning_rate: 2e-4
bf16: true
gradient_checkpointing: true
""",
}

failures = []


def fail(text):
    failures.append(text)
    print("FAILED:", text)


def ask(*words):
    """The JSON that a command prints; exit code 3 means that the plan does not fit."""
    done = subprocess.run([MESHPLAN, *words], capture_output=True, text=True)
    # check answers with 2 where a rule refuses the plan.
    if done.returncode not in (0, 3) and not (words[0] == "check" and done.stdout):
        fail(f"meshplan {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[:300]}")
        return None
    return json.loads(done.stdout)


def plain(answer):
    return {"step_time_s": answer["step_time_s"], "bytes": answer["peak_memory_bytes"], "verdict": answer["memory_verdict"]["verdict"]}


def of_check(answer):
    if answer is None:
        return {}
    if "memory" not in answer:
        return {"not_predicted": answer["not_predicted"]}
    fullest = min(answer["memory"], key=lambda stage: stage["capacity_bytes"] - stage["bytes"])
    return {"step_time_s": answer["step_time_s"], "bytes": fullest["bytes"], "verdict": answer["memory_verdict"]["verdict"]}


def time_and_bytes(answer):
    return {"step_time_s": answer["step_time_s"], "bytes": answer["peak_memory_bytes"]}


def of_compare(answer):
    return {"step_time_s": answer["predicted"]["median_s"], "bytes": answer["predicted_memory_bytes"]}


def of_plan(plan):
    """What is answered about a plan's file."""
    return {
        "import, simulate": plain(ask("simulate", plan, "--json")),
        "import, check": of_check(ask("check", plan, "--json")),
        "import, explain": time_and_bytes(ask("explain", plan, "--json")),
        "import, diff a": time_and_bytes(ask("diff", plan, plan, "--json")["a"]),
        "import, diff b": time_and_bytes(ask("diff", plan, plan, "--json")["b"]),
        "import, report": plain(ask("report", plan, "--json")),
        "import, compare": of_compare(ask("compare", plan, "--step-time", "1", "--json")),
    }


def compare_answers(file, words, folder):
    plan = os.path.join(folder, "plan.json")
    expected = ask("simulate", file, *words, "--json")
    if expected is None or ask("import", file, *words, "--out", plan, "--json") is None:
        return
    answers = {
        "check": of_check(ask("check", file, *words, "--json")),
        "report": plain(ask("report", file, *words, "--json")),
        **of_plan(plan),
    }
    compare(os.path.basename(file), words, plain(expected), answers)


def compare_flags(words, folder):
    plan = os.path.join(folder, "plan.json")
    expected = ask("simulate", *words, "--out", plan, "--json")
    if expected is not None:
        compare("flags", words, plain(expected), of_plan(plan))


def compare(name, words, expected, answers):
    for command, answer in answers.items():
        if answer.get("not_predicted") == "a rule refuses the plan":  # of that stack: nothing to compare
            continue
        for key, value in answer.items():
            if value != expected.get(key):
                fail(f"{name} {' '.join(words)}: {command} says {key} = {value}, simulate {expected.get(key)}")


def with_flags(script, flags, folder):
    """The script with flags behind its own, which argparse then takes."""
    with open(os.path.join(CASES, script)) as file:
        text = file.read().rstrip("\n")
    path = os.path.join(folder, re.sub(r"[^a-z0-9]+", "_", flags)[:60] + "_" + script)
    with open(path, "w") as file:
        file.write(f"{text} {flags}\n")
    return path


def main():
    os.chdir(CASES)
    asked = 0
    with tempfile.TemporaryDirectory() as folder:
        scripts = [(with_flags(script, flags, folder), ["--cluster", "dgx-h100"])
                   for script, added in (("c482a.sh", ADDED), ("c5123f.sh", ADDED[:11] + ADDED_OF_EXPERTS), ("qm.sh", ADDED_OF_EXPERTS))
                   for flags in added]
        for name, text in WRITTEN.items():
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        written = [(os.path.join(folder, name), ["--cluster", "dgx-h100", "--gpus", "8"]) for name in WRITTEN]
        for file, words in [*REPORTED.items(), *KEPT, *written, *scripts]:
            compare_answers(file, words, folder)
            asked += 1
        for words in FLAGGED:
            compare_flags(words, folder)
            asked += 1
    print(f"{asked} configurations, {len(failures)} answers that differ")
    sys.exit(1 if failures else 0)


main()
