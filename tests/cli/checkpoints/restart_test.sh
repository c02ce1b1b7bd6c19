#!/usr/bin/env bash
# One command that starts a run and restarts it, however often it is interrupted.
# Usage: restart_test.sh PATH_OF_meshplan [MPIEXEC]
set -u
meshplan=$1
mpiexec=${2:-mpiexec}
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"
make_plan pp2.json --pp 2

command=("$meshplan" run pp2.json --data text.txt --steps 4 --checkpoint-every 2)
restart() { expect 0 "$1" "${command[@]}" --resume latest-if-any "${@:2}"; }
starts_anew() { grep -q "^continues" stdout && fail "$1: a run is continued: $(head -3 stdout)"; }

restart "^checkpoints in .*/checkpoints every 2 steps"
starts_anew "no folder"
restart "^all 4 steps are done: checkpoints/step-4$"
rm -r checkpoints/step-4
mkdir checkpoints/step-9.tmp
restart "^continues .*/checkpoints/step-2 "
[ "$(ls checkpoints)" = "$(printf 'step-2\nstep-4')" ] || fail "after a restart: $(ls checkpoints)"
rm -r checkpoints
mkdir -p checkpoints/step-2.tmp
restart "^checkpoints in .*/checkpoints every 2 steps"
starts_anew "leftovers alone"
rm -r checkpoints/*
restart "^checkpoints in .*/checkpoints every 2 steps"
starts_anew "an empty folder"

# --- all steps are done: by other names, for programs, silently, for ranks of another launcher
done_pattern="^all 4 steps are done: .*checkpoints/step-4$"
expect 0 "$done_pattern" "${command[@]}" --resume latest
expect 0 "$done_pattern" "${command[@]}" --resume checkpoints
expect 0 "$done_pattern" "${command[@]}" --resume checkpoints/step-4
[ "$(wc -l <stdout)" -eq 1 ] || fail "more than a line: $(cat stdout)"
"${command[@]}" --resume latest --quiet >stdout 2>stderr || fail "--quiet: $(cat stderr)"
[ -s stdout ] && fail "--quiet: $(cat stdout)"
"${command[@]}" --resume latest --json | python3 -c '
import json, sys
done = json.load(sys.stdin)
sys.exit(not (done["all_steps_done"] == 4 and done["losses"] == []))' || fail "--json of what is done"
expect 0 "$done_pattern" "$mpiexec" -n 2 "$meshplan" run "$work/pp2.json" --data "$work/text.txt" \
  --steps 4 --resume latest-if-any --checkpoint-dir "$work/checkpoints"
[ "$(grep -c "are done" stdout)" -eq 1 ] || fail "not one line: $(cat stdout)"

# --- weights from elsewhere are those of the first start
expect 0 "" "$meshplan" checkpoint export checkpoints --to hf --out exported
restart "^weights of .*/exported " --checkpoint-dir tuned --init-from exported
rm -r tuned/step-4
restart "^continues .*/tuned/step-2 " --checkpoint-dir tuned --init-from exported
grep -q "weights of" stdout && fail "a continued run begins from other weights: $(head -3 stdout)"

# --- nothing is silently begun anew, or from further back
cp -r checkpoints damaged
truncate -s -10 damaged/step-4/rank-00000.safetensors
expect 2 "truncated or damaged; the newest intact one is damaged/step-2: mv damaged/step-4 " \
  "${command[@]}" --checkpoint-dir damaged --resume latest-if-any
rm damaged/step-4/index.json
for word in latest latest-if-any; do
  expect 2 "damaged/step-4: has no index.json: it is damaged; move it aside \(mv damaged/step-4 \
damaged/step-4.damaged\); the newest intact one is damaged/step-2: --resume damaged/step-2" \
    "${command[@]}" --checkpoint-dir damaged --resume "$word"
done
expect 1 "text.txt: cannot be read: Not a directory" "${command[@]}" --checkpoint-dir text.txt \
  --resume latest-if-any

# --- ranks that see different folders: a launcher of one's own starts each where it is
mkdir other
cp -r checkpoints here && rm -r here/step-4
printf '#!/bin/sh\ncd "$([ "$PMI_RANK" = 0 ] && echo %s || echo %s)" && exec "$@"\n' \
  "$work" "$work/other" >elsewhere
chmod +x elsewhere
expect 2 "here: rank 1 finds no checkpoint to resume there, rank 0 the checkpoint of step 2" \
  "$mpiexec" -n 2 "$work/elsewhere" "$meshplan" run "$work/pp2.json" --data "$work/text.txt" \
  --steps 4 --checkpoint-dir here --resume latest-if-any

finish
