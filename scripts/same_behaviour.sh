#!/usr/bin/env bash
# Shows that a change of structure changed nothing: random plans become the same programs (bytes), step times and memory,
# published runs the same predictions, and training gives the same losses, in BASE and in this working tree.
#   scripts/same_behaviour.sh BASE [PLANS] [TABLE.csv]      PLANS: 2500; TABLE: as `meshplan validate` reads
# Exit code 1: something differs; what, is printed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
base=$(git -C "$root" rev-parse --verify "${1:?usage: scripts/same_behaviour.sh BASE [PLANS] [TABLE.csv]}^{commit}")
plans=${2:-2500}
table=${3:+$(realpath "$3")}
work=$root/build/same-behaviour
mkdir -p "$work"

build() {  # SOURCE
  (cd "$1" && cmake --preset ci >/dev/null && ninja -C build/ci plan_digests meshplan >"$work/build.log" 2>&1) ||
    { tail -20 "$work/build.log" >&2; echo "same_behaviour: $1 does not build (is BASE older than bench/planner/plan_digests?)" >&2; exit 2; }
}

observe() {  # SOURCE FOLDER
  local binaries=$1/build/ci out=$2
  rm -rf "$out" && mkdir -p "$out" && cd "$out"
  "$binaries/bench/planner/plan_digests" "$plans" >digests
  [ -z "$table" ] || "$binaries/cli/meshplan" validate --table "$table" --csv rows.csv >validate.txt
  local plan
  while read -r plan; do
    # shellcheck disable=SC2086
    "$binaries/cli/meshplan" plan --model tiny-llama --cluster cpu-host --global-batch 8 --seq-len 32 $plan \
      --out "$out/plan.json" >/dev/null
    "$binaries/cli/meshplan" run "$out/plan.json" --steps 5 --json 2>/dev/null </dev/null |
      python3 -c 'import json, sys; print(sys.argv[1], *json.load(sys.stdin)["losses"])' "$plan" >>losses
  done <<'PLANS'
--gpus 1
--gpus 2 --tp 2 --sp
--gpus 2 --pp 2 --schedule zb-h1
--gpus 2 --cp 2
--gpus 4 --tp 2 --dp 2 --zero 3
--gpus 4 --pp 2 --vpp 2 --dp 2 --schedule interleaved --recompute full
PLANS
  rm -f plan.json
}

[ -d "$work/base" ] || git -C "$root" worktree add --detach "$work/base" "$base" >/dev/null 2>&1
git -C "$work/base" checkout --quiet --detach "$base"
build "$work/base"
build "$root"
(observe "$work/base" "$work/before")
(observe "$root" "$work/after")
status=0
for what in digests rows.csv validate.txt losses; do
  [ -e "$work/before/$what" ] || continue
  different=$(diff "$work/before/$what" "$work/after/$what" | grep -c '^>' || true)
  echo "$what: $(wc -l <"$work/before/$what") lines, $different differ"
  [ "$different" -eq 0 ] || { diff "$work/before/$what" "$work/after/$what" | head -10; status=1; }
done
exit $status
