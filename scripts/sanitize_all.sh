#!/usr/bin/env bash
# Everything that can run under sanitizers, before a change in threads or memory is called done (CI runs the layers' unit
# tests, with a fortieth of their random cases). Prints a line a part; stops at the first that fails. An hour and a half
# on two cores.
#   scripts/sanitize_all.sh [address|thread]      default: both
# address: AddressSanitizer and UndefinedBehaviorSanitizer over all tests but installed packages and browsers, with all
#          cases of sim, planner and kernels, and ten minutes of mutated inputs
# thread:  ThreadSanitizer over the tests of the layers that have threads, and over ranks that meet over TCP
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
wanted=${1:-both}
case $wanted in address | thread | both) ;; *) echo "usage: sanitize_all.sh [address|thread]" >&2; exit 2 ;; esac
[ $# -le 1 ] || { echo "usage: sanitize_all.sh [address|thread]" >&2; exit 2; }

part() {
  local name=$1 begin=$SECONDS
  shift
  echo "sanitize_all: $name" >&2
  "$@" || { echo "sanitize_all: $name failed after $((SECONDS - begin)) s" >&2; exit 1; }
  printf '%-40s %6d s\n' "$name" $((SECONDS - begin))
}

if [ "$wanted" != thread ]; then
  part "address: build" "$root/scripts/setup.sh" asan
  part "address: tests" ctest --test-dir "$root/build/asan" --output-on-failure --parallel "$(nproc)" -LE 'gpu|browser|install'
  part "address: all cases" env MESHPLAN_CASES=all \
    ctest --test-dir "$root/build/asan" --output-on-failure -R '^(sim|planner|kernels|kernels[.]cuda_emulated)$' --timeout 3600
  part "address: mutated inputs" "$root/scripts/fuzz.sh" 600 "$RANDOM"
fi
if [ "$wanted" != address ]; then
  # MPICH's transport hooks memory calls in a way that the sanitizer does not survive.
  export UCX_MEM_EVENTS=n UCX_MEM_MMAP_HOOK_MODE=none
  part "thread: build" "$root/scripts/setup.sh" tsan test_planner test_sim test_runtime test_kernels test_ranks test_parity
  part "thread: layers" ctest --test-dir "$root/build/tsan" --output-on-failure -R '^(planner|sim|runtime|kernels)$'
  part "thread: ranks" ctest --test-dir "$root/build/tsan" --output-on-failure -R '^runtime/(tcp|parity)\.np[1-4]$'
fi
