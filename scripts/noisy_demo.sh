#!/usr/bin/env bash
# Runs the demo beside a disturber and without, in turns, and says for each run what the predictions were
# worth. Nothing else should run on the machine. About 7 minutes a run on two cores.
#   scripts/noisy_demo.sh [runs of each kind [folder for the results]]      default: 5, build/noisy_demo
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
runs=${1:-5}
out=${2:-$root/build/noisy_demo}
mkdir -p "$out"
disturber=
stop_disturber() {
  if [ -n "$disturber" ]; then
    kill "$disturber" 2>/dev/null || true
    wait "$disturber" 2>/dev/null || true
  fi
  disturber=
}
trap stop_disturber EXIT

# after PATTERN FILE: the first number behind it, or "-"
after() { grep -o "$1 *[0-9.]*" "$2" | grep -o '[0-9.]*$' | head -n 1 || echo -; }
# before PATTERN FILE: the last number in front of it
before() { grep "$2" "$3" | grep -o '[0-9.]* %'"$1" | grep -o '^[0-9.]*' | tail -n 1 || echo -; }

row() {
  local kind=$1 run=$2 file=$3
  printf '%-6s %3s %8s %10s %12s %14s %12s\n' "$kind" "$run" \
    "$(after 'mean absolute step-time error:' "$file")" \
    "$(after 'at that speed' "$file")" \
    "$(before ' slower than the fastest' 'first choice' "$file")" \
    "$(after 'machine:' "$file")" \
    "$(before ' of the cores' 'machine:' "$file")"
}

{
  printf 'machine  %s, %s cores\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
  printf 'commit   %s\n\n' "$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo -)"
  printf '%-6s %3s %8s %10s %12s %14s %12s\n' '' run 'error %' 'at speed' 'choice slow%' 'disturbed %' 'others %'
} | tee "$out/summary.txt"
for ((run = 1; run <= runs; ++run)); do
  for kind in noisy quiet; do
    log=$out/$kind-$run.txt
    if [ "$kind" = noisy ]; then
      "$root/scripts/disturber.sh" "$run" &
      disturber=$!
    fi
    status=0
    "$root/demo.sh" "$out/$kind-$run" >"$log" 2>"$log.err" || status=$?
    stop_disturber
    [ "$status" -eq 0 ] || { cat "$log" "$log.err"; exit "$status"; }
    row "$kind" "$run" "$log" | tee -a "$out/summary.txt"
  done
done
