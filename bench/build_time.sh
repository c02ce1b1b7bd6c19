#!/usr/bin/env bash
# What a change costs until it is judged, and what a build from nothing costs; no compiler's cache helps.
#   bench/build_time.sh                             a source of sim changed: its unit tests are built and run; and
#                                                   program/plan.hpp changed: everything is built (preset ci)
#   bench/build_time.sh COMMIT COMMIT [target...]   processor time of two commits from nothing, both at once, so that
#                                                   what else the machine does meets both: the release preset without
#                                                   CUDA; default: everything
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -ne 1 ] || { echo "usage: build_time.sh [COMMIT COMMIT [target...]]" >&2; exit 2; }
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER
export CCACHE_DISABLE=1 TIMEFORMAT='%U %S %R'

# show NAME FILE: the line of `time` in a file
show() {
  local user system elapsed
  read -r user system elapsed < <(tail -n 1 "$2")
  printf '%-66s %8.1f s of processor time, %8.1f s elapsed\n' "$1" "$(awk "BEGIN { print $user + $system }")" "$elapsed"
}

if [ $# -eq 0 ]; then
  build=$root/build/ci
  "$root/scripts/setup.sh" ci
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  touch "$root/sim/src/engine/engine.cpp"
  { time { ninja -C "$build" test_sim && "$build/tests/test_sim"; } >"$work/log" 2>&1; } 2>"$work/time" ||
    { tail -20 "$work/log" >&2; exit 1; }
  show "sim/src/engine/engine.cpp changed: test_sim built and run" "$work/time"
  touch "$root/program/include/program/plan/plan.hpp"
  { time ninja -C "$build" >"$work/log" 2>&1; } 2>"$work/time" || { tail -20 "$work/log" >&2; exit 1; }
  show "program/plan/plan.hpp changed: everything built" "$work/time"
  exit
fi
commits=("$1" "$2")
targets=("${@:3}")
work=$(mktemp -d)
clean_up() {
  for side in 0 1; do git -C "$root" worktree remove --force "$work/$side" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean_up EXIT

build() {
  cd "$work/$1"
  cmake --preset release -DMESHPLAN_CUDA=OFF >"$work/$1.log" 2>&1
  { time ninja -j1 -C build/release "${targets[@]}" >>"$work/$1.log" 2>&1; } 2>"$work/$1.time"
}

for side in 0 1; do git -C "$root" worktree add -q --detach "$work/$side" "${commits[$side]}"; done
for side in 0 1; do build $side & done
failed=0
for job in $(jobs -p); do wait "$job" || failed=1; done
for side in 0 1; do
  [ "$failed" -eq 0 ] || { tail -20 "$work/$side.log" >&2; continue; }
  show "${commits[$side]}" "$work/$side.time"
done
exit $failed
