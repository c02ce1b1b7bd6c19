#!/usr/bin/env bash
# Processor time of building two commits from nothing, both at once, so that what else the machine does meets both.
#   bench/build_time.sh COMMIT COMMIT [target...]        the release preset without CUDA and ccache; default: everything
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -ge 2 ] || { echo "usage: build_time.sh COMMIT COMMIT [target...]" >&2; exit 2; }
commits=("$1" "$2")
targets=("${@:3}")
work=$(mktemp -d)
clean_up() {
  for side in 0 1; do git -C "$root" worktree remove --force "$work/$side" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean_up EXIT
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER
export CCACHE_DISABLE=1 TIMEFORMAT='%U %S %R'

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
  read -r user system elapsed <"$work/$side.time"
  printf '%-12s %8.1f s of processor time, %8.1f s elapsed\n' "${commits[$side]}" "$(awk "BEGIN { print $user + $system }")" "$elapsed"
done
exit $failed
