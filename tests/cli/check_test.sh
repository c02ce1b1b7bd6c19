#!/usr/bin/env bash
# `check` and `rules` of the command given as $1: exit codes, messages, JSON.
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# expect CODE PATTERN ARGUMENTS...: of meshplan; a fixed string in its output
expect() { check_output -F "$1" "$2" "$meshplan" "${@:3}"; }

"$meshplan" simulate --model llama3-70b --cluster dgx-h100 --tp 8 --sp --pp 4 --dp 2 --global-batch 64 \
  --zero 1 --out plan.json >/dev/null

# --- valid and fits
expect 0 "27 of 27 rules passed" check plan.json
expect 0 "verdict  no rule of meshplan is broken, and the plan fits" check plan.json
for target in megatron-lm deepspeed nanotron; do
  expect 0 "and the plan fits" check plan.json --for $target
done
expect 0 "what would be faster and train the same" check plan.json --for megatron-lm
expect 0 "schedule 1f1b vpp1 -> interleaved vpp2" check plan.json --for megatron-lm
grep -q "zb-v" stdout && fail "offers Megatron-LM a schedule that it does not have"
expect 0 "  heads(64) % tp(8) == 0" check plan.json --for megatron-lm --all
expect 0 "[megatron/core/transformer/transformer_config.py:1446]" check plan.json --for megatron-lm --all
expect 0 "costs (it starts all the same)" check plan.json --for megatron-lm --set parallel.tp=8 --cluster dgx-h100
expect 0 "M26  vocab(128256) % (128 * tp(8)) == 0 does not hold" check plan.json --for megatron-lm
expect 0 "set      micro_batch_size: 1 -> 2" check plan.json --for megatron-lm --set micro_batch_size=2
expect 0 "--software" check --help

# --- a rule refuses: 2
expect 2 "heads(64) % tp(6) == 0 must hold: every tp rank holds whole query heads; nearest tp: " \
  check plan.json --for megatron-lm --set parallel.tp=6
expect 2 "verdict  Megatron-LM does not start this plan" check plan.json --for megatron-lm --set parallel.tp=6
expect 2 "nearest tp: 4" check plan.json --for megatron-lm --set parallel.tp=5
expect 0 "memory   not predicted: 50 ranks do not fill whole nodes" check plan.json --for megatron-lm --set parallel.tp=1 \
  --set parallel.sp=false --set parallel.pp=10 --set parallel.dp=5 --set workload.global_batch_size=60
expect 2 "is not divisible by tp (6)" check plan.json --set parallel.tp=6
expect 2 "kv_heads(8) % tp(16) == 0 must hold" check plan.json --for torchtitan --set parallel.tp=16 --set zero_stage=0
expect 2 "ZeRO 2 and 3 are incompatible with pipeline parallelism; nearest zero: 1" \
  check plan.json --for deepspeed --set zero_stage=3
expect 2 "did you mean 'megatron-lm'" check plan.json --for megatron-l
expect 0 "target   Megatron-LM" check plan.json --for megatron
expect 2 "usage: meshplan check PLAN" check
expect 2 "near it: plan.json" check plam.json
expect 2 "at most 1048576" check plan.json --for megatron-lm --set parallel.tp=1048576 --set parallel.dp=1048576
expect 2 "no value of a plan" check plan.json --set parallel.tq=6

# --- does not fit: 3
expect 3 "does not fit: stage 0 needs" check plan.json --set parallel.tp=1 --set parallel.sp=false --set parallel.dp=16 \
  --cluster dgx-h100
expect 3 "what would fit, fastest first" check plan.json --set parallel.tp=2 --set parallel.dp=8 --cluster dgx-h100 \
  --for megatron-lm
change=$(grep -o -- "--set .*" stdout | head -1)
# shellcheck disable=SC2086
expect 0 "and the plan fits" check plan.json --set parallel.tp=2 --set parallel.dp=8 $change --cluster dgx-h100 --for megatron-lm

# --- without a cluster the rules alone
python3 - <<'PYTHON'
import json
plan = json.load(open("plan.json"))
for key in ("cluster", "cluster_name", "cluster_hash"):
    plan.pop(key, None)
json.dump(plan, open("bare.json", "w"))
PYTHON
expect 0 "memory   not predicted: the plan holds no cluster" check bare.json --for megatron-lm
expect 0 "verdict  no rule of Megatron-LM is broken" check bare.json --for megatron-lm
expect 0 "and the plan fits" check bare.json --for megatron-lm --cluster dgx-h100

# --- for programs
"$meshplan" check plan.json --for megatron-lm --set parallel.tp=6 --json >refused.json
"$meshplan" check plan.json --for megatron-lm --json >valid.json
"$meshplan" rules --json >rules.json
python3 - <<'PYTHON' || fail "JSON of check or rules"
import json
refused, valid, rules = (json.load(open(name)) for name in ("refused.json", "valid.json", "rules.json"))
broken = {rule["rule"]: rule for rule in refused["rules"] if rule["verdict"] == "failed"}
assert not refused["valid"] and broken["M4"]["nearest"]["fact"] == "tp", broken
assert "memory" not in refused and refused["not_predicted"]
assert valid["valid"] and valid["fits"] and len(valid["memory"]) == 4
assert all(change["step_time_s"] < valid["step_time_s"] for change in valid["faster"])
listed = {target["target"]: target for target in rules["targets"]}
assert set(listed) == {"meshplan", "megatron-lm", "torchtitan", "deepspeed", "nanotron"}
assert len(valid["rules"]) == len(listed["megatron-lm"]["rules"])
PYTHON

# --- rules
expect 0 "Megatron-LM (rules of NVIDIA/Megatron-LM d98e8a64)" rules
expect 0 "requires  kv_heads % tp == 0 or tp % kv_heads == 0" rules --for megatron-lm
expect 0 "[torchtitan/models/common/decoder.py:195]" rules --for torchtitan
expect 0 "undecidable: PipelineModule divides layers in Python" rules --for deepspeed
expect 2 "did you mean" rules --for nanotrom

finish
