#!/usr/bin/env bash
# explain, why-not, diff and --set of the command given as $1: exit codes, messages, and that their
# numbers are those of simulate.
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# expect CODE PATTERN ARGUMENTS...: of meshplan; a fixed string in its output
expect() { check_output -F "$1" "$2" "$meshplan" "${@:3}"; }

# number FILE KEY...: a value of a JSON file
number() { python3 -c 'import functools, json, sys
print(functools.reduce(lambda value, key: value[int(key) if isinstance(value, list) else key], sys.argv[2:], json.load(open(sys.argv[1]))))' "$@"; }
# holds EXPRESSION: of numbers, in Python
holds() { python3 -c "import sys; sys.exit(not ($1))" || fail "$1 does not hold"; }

llama=(--model llama3-8b --cluster dgx-h100 --global-batch 32 --seq-len 4096)
"$meshplan" simulate "${llama[@]}" --tp 4 --sp --pp 2 --dp 2 --out a.json >/dev/null || fail "no a.json"
"$meshplan" simulate "${llama[@]}" --tp 8 --sp --dp 2 --out b.json >/dev/null || fail "no b.json"

# --- explain: its parts sum to what simulate says
expect 0 "model FLOPs at the peak" explain a.json
expect 0 "what 10 % more of a figure does" explain a.json
expect 0 "rule of thumb  " explain a.json
expect 0 "against tp8 sp dp2" explain a.json --against b.json
expect 0 "the same plan" explain a.json --against a.json
expect 0 "of the busiest rank" explain a.json --software megatron-core
for software in meshplan megatron-core; do
  "$meshplan" explain a.json --software "$software" --json >explained.json
  "$meshplan" simulate a.json --software "$software" --json >simulated.json
  holds "abs($(number explained.json step_time_s) - $(number simulated.json step_time_s)) == 0"
  python3 -c 'import json; j = json.load(open("explained.json"))
assert abs(sum(j["parts_s"].values()) - j["step_time_s"]) < 1e-9 * j["step_time_s"]
assert abs(j["parts_s"]["ideal"] / j["step_time_s"] - j["mfu"]) < 1e-9' || fail "the parts do not sum"
done
expect 2 "explain needs a plan's file" explain

# --- what cannot be said
python3 -c 'import json; j = json.load(open("a.json"))
for key in ("cluster", "cluster_hash", "cluster_name"): j.pop(key, None)
json.dump(j, open("homeless.json", "w"))'
expect 2 "name one with --cluster" explain homeless.json
expect 2 "name one with --cluster" why-not homeless.json tp=8
expect 2 "name one with --cluster" diff a.json homeless.json
expect 0 "rule of thumb" explain homeless.json --cluster dgx-h100
"$meshplan" simulate --model llama3-70b --cluster dgx-h100 --tp 8 --sp --global-batch 8 --seq-len 8192 --out big.json >/dev/null
expect 3 "does not fit; would with" explain big.json
expect 0 "does not fit beside the reserve itself" why-not big.json "recompute=full"
expect 2 "plans are compared that do the same work" explain a.json --against big.json

# --- why-not: the answer is what simulating the plan by hand says
"$meshplan" why-not a.json "tp=8,pp=1,zero=0" --json >why.json
"$meshplan" simulate b.json --json >b_simulated.json
"$meshplan" simulate a.json --json >a_simulated.json
holds "$(number why.json plan step_time_s) == $(number b_simulated.json step_time_s)"
holds "$(number why.json plan peak_memory_bytes) == $(number b_simulated.json peak_memory_bytes)"
holds "abs($(number why.json slower_by_s) - ($(number b_simulated.json step_time_s) - $(number a_simulated.json step_time_s))) < 1e-12"
expect 0 "follows  dp 2 -> 4" why-not a.json tp=2
expect 0 "does not divide the 16 ranks of the cluster; nearest tp: 2" why-not a.json tp=3
expect 0 "breaks a rule" why-not a.json "tp=16,pp=1,mbs=7"
expect 0 "lacks" why-not a.json "tp=1,pp=1,dp=16,mbs=2,zero=0"
expect 0 "the same plan" why-not a.json tp=4
expect 0 "megatron-core runs 1f1b or interleaved" why-not a.json schedule=zb-h1 --software megatron-core
expect 2 "did you mean 'recompute'?" why-not a.json recompote=full
expect 0 "changed  recompute " why-not a.json "recompute=norms+mlp"
expect 2 "expected an integer" why-not a.json tp=x
expect 2 "why-not needs" why-not a.json

# --- diff: parts sum to the difference
expect 0 "parallel.tp  4  8" diff a.json b.json
expect 0 "both take as long" diff a.json a.json
"$meshplan" diff a.json b.json --json >diff.json
python3 -c 'import json; j = json.load(open("diff.json"))
apart = j["b"]["step_time_s"] - j["a"]["step_time_s"]
assert abs(sum(j["differences_s"].values()) - apart) < 1e-9 and abs(j["slower_by_s"] - apart) < 1e-12' || fail "differences do not sum"
expect 2 "diff needs two plans' files" diff a.json

# --- --set: figures of the cluster, everywhere one option
slower_by() { # SETTING: of simulate, in seconds
  "$meshplan" simulate a.json --set "$1" --json >changed.json || fail "--set $1"
  python3 -c "print($(number changed.json step_time_s) - $(number a_simulated.json step_time_s))"
}
holds "$(slower_by network=0.5) >= 0"
holds "$(slower_by nvlink=0.5) > 0"
holds "$(slower_by nvlink=2) < 0"
holds "$(slower_by latency=2) > 0"
holds "$(slower_by flops=0.5) > 0"
holds "$(slower_by memory=2) == 0"
expect 0 "set      fabric[1].link_gb_per_s: 48.0 -> 24.0" simulate a.json --set network=0.5
expect 0 "dgx-h100 (network=0.5)" explain a.json --set network=0.5
expect 0 "dgx-h100 (network=0.5)" simulate "${llama[@]}" --tp 8 --set network=0.5
expect 0 "set      device.memory_gib: 79.6 -> 141.0" plan "${llama[@]}" --gpus 8 --set device.memory_gib=141 --out c.json
grep -q '"memory_gib": 141.0' c.json || fail "the changed cluster is not in the plan"
expect 0 "step time" simulate c.json
expect 0 "set      parallel.dp: 2 -> 1" simulate a.json --set parallel.dp=1 --set network=0.5 --set cluster.num_nodes=1
expect 2 "did you mean 'network'?" simulate a.json --set netwrok=0.5
expect 2 "did you mean 'network'?" plan "${llama[@]}" --gpus 16 --set netwrok=0.5
expect 2 "a factor from 0.001 to 1000" plan "${llama[@]}" --gpus 16 --set network=0
expect 2 "changes nothing for --software megatron-core" simulate a.json --software megatron-core --set device.efficiency.gemm=0.5
expect 0 "step time" simulate a.json --software megatron-core --set network=0.5

# --- plan: the rule of thumb, and why not
expect 0 "rule of thumb  " plan "${llama[@]}" --gpus 16
expect 0 "why not tp8 sp" plan "${llama[@]}" --gpus 16 --tp 4 --sp --why-not "tp=8,pp=1"
expect 0 "what would have to change for #2" plan "${llama[@]}" --gpus 16 --explain
expect 2 "did you mean 'zero'?" plan "${llama[@]}" --gpus 16 --why-not "zeroo=1"
expect 2 "ask \`meshplan why-not --json\`" plan "${llama[@]}" --gpus 16 --why-not "tp=8,pp=1" --json
expect 3 "there is no plan to change" plan --model llama3.1-405b --cluster dgx-h100 --gpus 8 --global-batch 8 --why-not tp=8

finish
