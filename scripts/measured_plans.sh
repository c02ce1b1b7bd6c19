# What demo.sh, closed_loop.sh and gpu_check.sh share; to be sourced. Plans are predicted into $out/plans, for
# `meshplan trial` to run. MESHPLAN names a program that is built already.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
meshplan=${MESHPLAN:-$root/build/release/cli/meshplan}
precision=fp32
text=/usr/share/common-licenses/GPL-3  # to train on

say() { printf '\n== %s\n' "$*"; }

# begin FOLDER: builds meshplan and empties FOLDER/plans
begin() {
  [ -n "${MESHPLAN:-}" ] || "$root/scripts/setup.sh" release meshplan
  out=$1
  mkdir -p "$out/plans"
  rm -f "$out"/plans/*.json
}

# measure MODEL FILE [MICRO-BATCHES [FLAGS...]]: operators of the model's shapes and communication, no plan
measure() {
  "$meshplan" calibrate --out "$2" --name here --model "$1" --seq-len "$seq_len" \
    --global-batch "$global_batch" --micro-batches "${3:-1,2,4}" "${@:4}"
}

# workload_of MODEL CLUSTER: sets `workload`, the flags that plans of it share
workload_of() {
  workload=(--model "$1" --cluster "$2" --global-batch "$global_batch" --seq-len "$seq_len"
    --precision "$precision")
}

# simulate NAME FLAGS...
simulate() {
  local name=$1
  shift
  "$meshplan" simulate "${workload[@]}" "$@" --out "$out/plans/$name.json" >/dev/null
}
