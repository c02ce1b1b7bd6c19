#!/usr/bin/env bash
# How long `plan` takes from its first line to its last, with all that it shows simulated: the median of RUNS runs
# on two threads, beside the time that it is meant to stay under, if there is one.
#   bench/planner/plan_times.sh [RUNS]        default: 5; MESHPLAN_PRESET=ci for another build than release
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
preset=${MESHPLAN_PRESET:-release}
runs=${1:-5}
meshplan=$root/build/$preset/cli/meshplan
[ -x "$meshplan" ] || { echo "plan_times: no $meshplan; scripts/setup.sh $preset meshplan builds it" >&2; exit 1; }

median_of() {  # runs of the command
  for ((i = 0; i < runs; ++i)); do
    local begin=$EPOCHREALTIME
    "$@" >/dev/null 2>&1
    local end=$EPOCHREALTIME
    echo $(((${end/./} - ${begin/./}) / 1000))
  done | sort -n | sed -n "$(((runs + 1) / 2))p"
}

printf '%-40s %10s %10s\n' search 'median, ms' 'aim, ms'
measure() {  # name, aim in ms or -, flags of plan
  local name=$1 aim=$2
  shift 2
  printf '%-40s %10d %10s\n' "$name" "$(median_of "$meshplan" plan --threads 2 "$@")" "$aim"
}
measure 'Llama-3 8B on 64 H100' 300 --model llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 512 --seq-len 8192
measure 'Llama-3.1 405B on 16,384 H100' 2000 --model llama3.1-405b --cluster dgx-h100 --gpus 16384 \
  --global-batch 2048 --seq-len 8192
measure 'DeepSeek-V3 on 2,048 H100' 3000 --model deepseek-v3 --cluster dgx-h100 --gpus 2048 --global-batch 15360 \
  --seq-len 4096
measure 'Llama-3.1 405B on 512 GB200' - --model llama3.1-405b --cluster gb200-nvl72 --gpus 512 \
  --global-batch 512 --seq-len 8192
