#!/usr/bin/env bash
# Feeds every reader of meshplan with mutated inputs and keeps those that abort, hang, take more than
# 1 GiB, reach an internal error, are refused without the name of their file, or are exported to files that
# their targets do not read (docs/input.md).
#   scripts/fuzz.sh SECONDS [SEED]        MESHPLAN_PRESET=ci for speed; default: asan
#   scripts/fuzz.sh SECONDS SEED --reader tokenizer --jobs 1
#   scripts/fuzz.sh SECONDS SEED --signals        instead: random signals to training jobs (faults/fuzz_signals.py)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
seconds=${1:?usage: scripts/fuzz.sh SECONDS [SEED]}
seed=${2:-1}
preset=${MESHPLAN_PRESET:-asan}
if [ "${3:-}" = --signals ]; then
  "$root/scripts/setup.sh" "$preset" meshplan
  exec "$root/scripts/faults/fuzz_signals.py" "$root/build/$preset/cli/meshplan" "$seconds" "$seed" "${@:4}"
fi
"$root/scripts/setup.sh" "$preset" meshplan_fuzz
work=$(mktemp -d)
trap 'rm -rf "$work" /dev/shm/fuzzed-input-*' EXIT
findings=$root/build/$preset/fuzz-findings
cd "$work"  # nothing that an input names lies here
export MALLOC_ARENA_MAX=2     # each thread's own reserves 64 MiB, which is not memory
export UCX_HANDLE_ERRORS=none  # MPICH's transport would catch the signals that tell of a crash
"$root/build/$preset/tests/meshplan_fuzz" --seconds "$seconds" --seed "$seed" \
  --corpus "$root/tests/fuzz/corpus" --keep "$findings" "${@:3}"
