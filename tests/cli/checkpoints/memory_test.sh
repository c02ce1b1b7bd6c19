#!/usr/bin/env bash
# States in the memory of nodes as a user sees them: a killed job goes on from them, also on other ranks
# and without one of its nodes; nothing is left of them when a run is over.
# Usage: memory_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"

make_plan pp2.json --pp 2
make_plan one.json

# stores_of FOLDER: patterns of the stores of runs that save there (FNV-1a of its absolute path)
stores_of() {
  python3 - "$1" <<'PY'
import os, sys
value = 0xcbf29ce484222325
for byte in os.path.abspath(sys.argv[1]).encode():
    value = (value ^ byte) * 0x100000001b3 % 2**64
print(f"/dev/shm/meshplan-state-{os.geteuid()}-{value:016x}-*")
PY
}
# shellcheck disable=SC2086
nothing_left() { ls -d $(stores_of "$1") >/dev/null 2>&1 && fail "$2 leaves $(ls -d $(stores_of "$1"))"; }
trap 'rm -rf $(stores_of "$work/a") $(stores_of "$work/b") "$work"' EXIT

nodes=(--hosts localhost:1,127.0.0.1:1 --any-placement)
training=(--data "$work/text.txt" --seed 3 --lr-schedule constant --learning-rate 0.001)

# killed_job FOLDER: a job on two nodes that is killed after some steps
killed_job() {
  "$meshplan" run pp2.json "${nodes[@]}" "${training[@]}" --steps 1000000 --checkpoint-dir "$1" \
    --memory-every 1 >stdout 2>stderr &
  local job=$! pattern
  pattern=$(stores_of "$1")
  for _ in $(seq 1200); do
    # shellcheck disable=SC2086
    [ "$(ls $pattern/step-*/rank-*.json 2>/dev/null | wc -l)" -ge 4 ] && break
    sleep 0.05
  done
  kill -KILL "$job" $(ranks) 2>/dev/null
  wait "$job" 2>/dev/null
  for _ in $(seq 200); do
    [ -z "$(ranks)" ] && break
    sleep 0.05
  done
  # shellcheck disable=SC2086
  [ "$(ls -d $pattern | wc -l)" -eq 2 ] || fail "a killed job leaves no two stores: $(cat stdout stderr)"
}

# continued PLAN FOLDER TOLERANCE ARGUMENTS...: goes on for four steps, with the losses of a run that was
# never interrupted
continued() {
  local plan=$1 folder=$2 tolerance=$3 step
  shift 3
  # shellcheck disable=SC2086
  step=$(ls -d $(stores_of "$folder")/step-* | sed 's/.*step-//' | sort -n | tail -1)
  local steps=$((step + 4))
  "$meshplan" run "$plan" "$@" "${training[@]}" --steps "$steps" --checkpoint-dir "$folder" \
    --memory-every 1 --resume latest --log log.jsonl >stdout 2>stderr ||
    fail "cannot go on: $(cat stdout stderr)"
  grep -qE "^continues step [0-9]+ in the memory of [12] nodes? " stdout || fail "not continued: $(cat stdout stderr)"
  "$meshplan" run pp2.json "${training[@]}" --steps "$steps" --json >whole.json 2>stderr || fail "$(cat stderr)"
  python3 - "$tolerance" <<'PY' || fail "other losses than those of a whole run: $(cat stdout)"
import json, sys
whole = json.load(open("whole.json"))["losses"]
lines = [json.loads(line) for line in open("log.jsonl")]
steps = [line for line in lines if line["kind"] == "step"]
saving = [line for line in lines if line["kind"] == "summary"][-1]["saving"]["memory"]
assert 4 <= len(steps) <= 7 and steps[-1]["step"] == len(whole), [s["step"] for s in steps]
assert saving["saves"] + saving["skipped"] == len(steps) - 1, saving
sys.exit(not all(abs(s["loss"] - whole[s["step"] - 1]) <= float(sys.argv[1]) for s in steps))
PY
  rm log.jsonl
  nothing_left "$folder" "a run that is over"
}

killed_job a
continued pp2.json a 0 "${nodes[@]}"
grep -qE "^memory +every 1 steps a rank copies [0-9.]+ MiB.*; stores on 2 nodes take" stdout ||
  fail "the start does not say what memory is taken: $(cat stdout)"
grep -qE "^saving .*memory [0-9]+ times" stdout || fail "the summary says nothing: $(cat stdout)"
[ -d "a/$(ls a | tail -1)" ] || fail "the end is not on the disk: $(ls a)"

# --- a node is lost, and the job goes on with one rank
killed_job b
# shellcheck disable=SC2046
rm -r $(stores_of b | sed 's/\*$/localhost/')
continued one.json b 2e-5 --hosts 127.0.0.1:1 --any-placement

# --- a new run does not take what another one left
rm -r a
killed_job a
expect 0 "memory: the state of step [0-9]+ is not continued by this run: it is removed" "$meshplan" run pp2.json \
  "${nodes[@]}" "${training[@]}" --steps 2 --checkpoint-dir a --memory-every 1
nothing_left a "a run"
rm -r a
expect 2 "a: holds no complete checkpoint|a: no such checkpoint folder" "$meshplan" run pp2.json "${training[@]}" \
  --steps 2 --checkpoint-dir a --memory-every 1 --resume latest
expect 0 "all ranks are on one node, so no other node keeps copies" "$meshplan" run pp2.json "${training[@]}" \
  --steps 3 --checkpoint-dir a --memory-every 1 --resume latest-if-any
nothing_left a "a run on one node"

# --- the interval between checkpoints on the disk
rm -r a
expect 0 "checkpoints every [0-9]+ steps .*: a save holds up training for .*, and the job fails every 0.01 h" \
  "$meshplan" run pp2.json "${training[@]}" --steps 60 --checkpoint-dir a --checkpoint-every auto --mtbf 0.02h
expect 2 "\-\-checkpoint-every often: must be a number of steps from 0 to 1000000000, or auto" "$meshplan" run \
  pp2.json --checkpoint-every often
expect 2 "auto: needs --mtbf, how long a device" "$meshplan" run pp2.json --checkpoint-every auto
expect 2 "\-\-mtbf: is for --checkpoint-every auto" "$meshplan" run pp2.json --mtbf 3h

finish
