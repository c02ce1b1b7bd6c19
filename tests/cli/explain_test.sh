#!/usr/bin/env bash
# explain, why-not, diff and --set of the command given as $1: exit codes, messages, and that their
# numbers are those of simulate.
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# expect CODE PATTERN ARGUMENTS...: of meshplan; a fixed string in its output
expect() { check_output -F "$1" "$2" "$meshplan" "${@:3}"; }

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
  "$meshplan" explain a.json --software "$software" --json >"$software.explained.json"
  "$meshplan" simulate a.json --software "$software" --json >"$software.simulated.json"
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
expect 2 "diff needs two plans' files" diff a.json

# --- --set: figures of the cluster, everywhere one option
for setting in network=0.5 nvlink=0.5 nvlink=2 latency=2 flops=0.5 memory=2; do
  "$meshplan" simulate a.json --set "$setting" --json >"$setting.json" || fail "--set $setting"
done
python3 - <<'PY' || fail "numbers are not those of simulate"
import json
def of(name):
    return json.load(open(name + ".json"))
wrong = []
def holds(what, value):
    if not value:
        wrong.append(what)

for software in ("meshplan", "megatron-core"):
    explained, simulated = of(software + ".explained"), of(software + ".simulated")
    step_s = explained["step_time_s"]
    holds(f"{software}: one step time", step_s == simulated["step_time_s"])
    holds(f"{software}: parts sum to it", abs(sum(explained["parts_s"].values()) - step_s) < 1e-9 * step_s)
    holds(f"{software}: MFU", abs(explained["parts_s"]["ideal"] / step_s - explained["mfu"]) < 1e-9)

a, b, why, diff = of("meshplan.simulated"), of("b_simulated"), of("why"), of("diff")
slower_s = b["step_time_s"] - a["step_time_s"]
holds("why-not: step time", why["plan"]["step_time_s"] == b["step_time_s"])
holds("why-not: memory", why["plan"]["peak_memory_bytes"] == b["peak_memory_bytes"])
holds("why-not: slower by", abs(why["slower_by_s"] - slower_s) < 1e-12)
apart = diff["b"]["step_time_s"] - diff["a"]["step_time_s"]
holds("diff: differences sum", abs(sum(diff["differences_s"].values()) - apart) < 1e-9)
holds("diff: slower by", abs(diff["slower_by_s"] - apart) < 1e-12)

changed_s = {name: of(name)["step_time_s"] - a["step_time_s"]
             for name in ("network=0.5", "nvlink=0.5", "nvlink=2", "latency=2", "flops=0.5", "memory=2")}
holds("network=0.5", changed_s["network=0.5"] >= 0)
holds("nvlink=0.5", changed_s["nvlink=0.5"] > 0)
holds("nvlink=2", changed_s["nvlink=2"] < 0)
holds("latency=2", changed_s["latency=2"] > 0)
holds("flops=0.5", changed_s["flops=0.5"] > 0)
holds("memory=2", changed_s["memory=2"] == 0)
for what in wrong:
    print("does not hold:", what)
assert not wrong
PY
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
expect 3 "there is no plan to change" plan --model llama3-70b --cluster one-h100 --global-batch 8 --why-not tp=8

finish
