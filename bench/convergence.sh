#!/usr/bin/env bash
# One model on one text under plans that share nothing but the mathematics: final losses side by side.
#   bench/convergence.sh [steps] [text] [folder]
# Exit code 1 if two final losses differ by more than BOUND nats. Plans add the same numbers in other orders, so
# that weights differ by fp32 rounding from the first step on and drift apart from there. BOUND lies a hundred times above
# what that drift comes to in 60 steps (9e-7) and below what a wrong sum, scale or shard does to a loss within the first steps.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
meshplan=$root/build/release/cli/meshplan
steps=${1:-60} text=${2:-/usr/share/common-licenses/GPL-3} out=${3:-$root/build/convergence}
BOUND=0.0001
mkdir -p "$out"

run() { # run NAME MODEL RANKS FLAGS...
  local name=$1 model=$2 ranks=$3; shift 3
  "$meshplan" simulate --model "$model" --cluster cpu-host --ranks "$ranks" --seq-len 128 --global-batch 8 \
    --precision fp32 "$@" --out "$out/$name.json" > "$out/$name.simulated"
  "$meshplan" run "$out/$name.json" --data "$text" --steps "$steps" --seed 1 --time-every 0 --any-placement \
    --json > "$out/$name.losses"
}
run one-rank   tiny-llama 1
run tp2-sp     tiny-llama 2 --tp 2 --sp
run pp2-zb-h1  tiny-llama 2 --pp 2 --schedule zb-h1
run dp2-zero3  tiny-llama 2 --dp 2 --zero 3
run cp2-ring   tiny-llama 2 --cp 2 --context-parallel ring
run moe-one    tiny-moe   1
run moe-ep2    tiny-moe   2 --dp 2 --ep 2
python3 - "$out" $BOUND <<'PRINT'
import json, sys
folder, bound = sys.argv[1], float(sys.argv[2])
models = {"tiny-llama": ["one-rank", "tp2-sp", "pp2-zb-h1", "dp2-zero3", "cp2-ring"],
          "tiny-moe": ["moe-one", "moe-ep2"]}
failed = False
for model, names in models.items():
    losses = {name: json.load(open(f"{folder}/{name}.losses"))["losses"] for name in names}
    print(f"{model}, {len(losses[names[0]])} steps\n{'plan':<12}{'first':>12}{'last':>12}{'from one rank':>15}")
    for name in names:
        print(f"{name:<12}{losses[name][0]:12.6f}{losses[name][-1]:12.6f}{losses[name][-1] - losses[names[0]][-1]:15.2e}")
    last = [losses[name][-1] for name in names]
    learned = all(l[-1] < l[0] - 0.5 for l in losses.values())
    difference = max(last) - min(last)
    failed |= not learned or not difference <= bound
    print(f"  largest difference {difference:.2e} (bound {bound:g}){'' if learned else '; the loss hardly fell'}\n")
sys.exit(failed)
PRINT
