#!/usr/bin/env bash
# Losses on real text with whole and with compressed gradients, side by side.
#   bench/compression_convergence.sh [steps] [text] [folder]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
meshplan=$root/build/release/cli/meshplan
steps=${1:-100} text=${2:-/usr/share/common-licenses/GPL-3} out=${3:-$root/build/compression}
mkdir -p "$out"

run() { # run NAME FLAGS...
  local name=$1; shift
  "$meshplan" simulate --model tiny-llama --cluster cpu-host --seq-len 128 --global-batch 8 --precision fp32 \
    --dp 2 "$@" --out "$out/$name.json" > "$out/$name.simulated"
  "$meshplan" run "$out/$name.json" --data "$text" --steps "$steps" --any-placement --json > "$out/$name.losses"
}
run whole
run int8 --compress int8
run int8-zero1 --compress int8 --zero 1
run top-k-10% --compress top-k --compress-ratio 0.1
run top-k-1% --compress top-k --compress-ratio 0.01
python3 - "$out" whole int8 int8-zero1 top-k-10% top-k-1% <<'PRINT'
import json, sys
folder, names = sys.argv[1], sys.argv[2:]
losses = {name: json.load(open(f"{folder}/{name}.losses"))["losses"] for name in names}
print("step      " + "".join(f"{name:>12}" for name in names))
count = len(losses[names[0]])
for step in sorted({1, *range(max(1, count // 10), count + 1, max(1, count // 10))}):
    print(f"{step:<10}" + "".join(f"{losses[name][step - 1]:12.4f}" for name in names))
PRINT
grep -h "^compression" "$out"/*.simulated || true
