#!/usr/bin/env bash
# How long keeping states in the memory of nodes holds up steps: a model of 54 million parameters, two
# ranks that count as two nodes, a state after every step.
#   bench/memory_saving.sh [MESHPLAN] [folder] [sequences a step] [steps]
# Runs with and without take turns on the same machine, so that others who use it disturb both alike. Two
# figures: the stall that the run itself measures, as part of its steps (bound: 2 %), and the median step
# of both kinds, whose difference also holds what sending and checking costs ranks that have no core to
# spare for it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
meshplan=${1:-$root/build/release/cli/meshplan}
out=${2:-$root/build/memory_saving} batch=${3:-16} steps=${4:-6} turns=2
rm -rf "$out"
mkdir -p "$out"
cat >"$out/model.json" <<'JSON'
{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8,
 "num_key_value_heads": 8, "intermediate_size": 1376, "vocab_size": 16384,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": false}
JSON
"$meshplan" simulate --model "$out/model.json" --cluster cpu-host --ranks 2 --dp 2 --global-batch "$batch" \
  --seq-len 512 --precision fp32 --out "$out/plan.json" >"$out/simulated"
run() { # run NAME ARGUMENTS...
  "$meshplan" run "$out/plan.json" --hosts localhost:1,127.0.0.1:1 --any-placement --steps "$steps" --quiet \
    --no-verify-start --checkpoint-dir "$out/checkpoints" --log "$out/$1.jsonl" "${@:2}" >"$out/$1.out"
  rm -rf "$out/checkpoints"
}
for turn in $(seq $turns); do
  run "plain.$turn"
  run "memory.$turn" --memory-every 1
done
python3 - "$out" <<'PRINT'
import glob, json, statistics, sys
def lines(kind):
    return [json.loads(line) for name in sorted(glob.glob(f"{sys.argv[1]}/{kind}.*.jsonl")) for line in open(name)]
def median(kind):
    return statistics.median(line["step_time_s"] for line in lines(kind) if line["kind"] == "step" and line["step"] > 1)
memory = [line["saving"]["memory"] for line in lines("memory") if line["kind"] == "summary"]
saves = sum(m["saves"] for m in memory)
stall = sum(m["stall_s"] for m in memory) / saves
share = max(m["stall_share"] for m in memory)
print(f"a rank copies          {memory[0]['bytes_per_rank'] / 2**20:.1f} MiB")
print(f"states kept, skipped   {saves}, {sum(m['skipped'] for m in memory)}")
print(f"stall of a save        {stall:.3f} s")
print(f"stall / step           {100 * share:.2f} %")
print(f"median step            {median('plain'):.2f} s without, {median('memory'):.2f} s with")
sys.exit(share > 0.02)
PRINT
