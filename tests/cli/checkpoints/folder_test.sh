#!/usr/bin/env bash
# What happens to a folder of checkpoints, and to the files in it, is said by name.
# Usage: folder_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"
make_plan pp2.json --pp 2
run=("$meshplan" run pp2.json --data text.txt)

# --- no other command writes into a checkpoint
expect 0 "" "${run[@]}" --steps 2 --checkpoint-dir saved --checkpoint-every 1 --trace trace.json
expect 0 "" "$meshplan" simulate pp2.json --trace predicted.json
sums=$(cd saved && find . -type f -exec sha256sum {} +)
ln -s saved/step-2 link
protected="is a checkpoint, which a run alone writes to; name a file elsewhere"
for file in saved/step-2/index.json saved/step-2/rank-00001.safetensors saved/step-2/new.json link/index.json \
  "$PWD/saved/../saved/step-1/index.json"; do
  expect 1 "$file: cannot be written: .*/saved/step-[12] $protected" "$meshplan" simulate pp2.json --out "$file"
done
expect 1 "$protected" "$meshplan" simulate pp2.json --trace saved/step-2/index.json
expect 1 "$protected" "$meshplan" simulate pp2.json --trace saved/step-2/trace.json.gz
expect 1 "$protected" "$meshplan" compare predicted.json trace.json --chrome saved/step-2/index.json
expect 1 "$protected" "${run[@]}" --steps 2 --log saved/step-2/index.json
[ "$(cd saved && find . -type f -exec sha256sum {} +)" = "$sums" ] || fail "a checkpoint was changed"
expect 0 "" "$meshplan" simulate pp2.json --out saved/plan.json  # beside them is no harm
"$meshplan" checkpoint inspect saved >stdout 2>stderr || fail "inspect: $(cat stderr)"

# --- a folder that cannot be written to is told before the first step, as the system says it
if [ "$(id -u)" -ne 0 ]; then
  mkdir closed parent
  chmod 555 closed parent
  expect 1 "closed: checkpoints cannot be saved there: .*Permission denied" "${run[@]}" --checkpoint-dir closed
  expect 1 "parent/c: checkpoints cannot be saved there: .*Permission denied" "${run[@]}" --checkpoint-dir parent/c
fi
expect 1 "text.txt/c: checkpoints cannot be saved there: .*/text.txt is not a folder" "${run[@]}" \
  --checkpoint-dir text.txt/c
# Not even root creates folders there; how the system says so depends on how it is mounted.
expect 1 "/sys/c: checkpoints cannot be saved there: .*(Read-only file system|Operation not permitted|Permission denied)" \
  "${run[@]}" --checkpoint-dir /sys/c
grep -qE "^ +1 " stdout && fail "a step was trained before the folder was found closed"

# --- the first save fails: nothing is there to continue from. What write() says beyond 32 KiB is as
# final as a full disk; ranks without MPI, whose shared memory is larger files.
make_plan one.json
limited() {
  (ulimit -f 32; trap "" XFSZ; exec "$tests/../tcp_ranks.sh" 1 "$meshplan" run one.json --data text.txt "$@") \
    >stdout 2>stderr && fail "a save is complete that cannot be: $*"
}
limited --steps 2 --checkpoint-dir full
grep -q "the checkpoint of step 2 is not saved: .*File too large; no checkpoint is in full: there is nothing to continue from" \
  stderr || fail "the first save fails: $(cat stderr)"
cp -r saved again
limited --steps 3 --decay-steps 2 --resume again --checkpoint-dir again
grep -q "step 3 is not saved: .*earlier ones in again are untouched, continue from step 2: --resume again/step-2" \
  stderr || fail "a later save fails: $(cat stderr)"
expect 0 "^continues" "${run[@]}" --steps 3 --decay-steps 2 --resume again/step-2
mkdir other  # what it holds is no checkpoint to continue from
cp -r again/step-2 other && truncate -s -10 other/step-2/rank-00000.safetensors
limited --steps 3 --decay-steps 2 --resume again/step-2 --checkpoint-dir other
grep -q "no checkpoint is in other: there is nothing to continue from" stderr || fail "another folder: $(cat stderr)"

# --- the folder is removed, or is another one, between two saves of a run
# lose HOW PATTERN: does HOW to the folder `lost` after the first save, and stops the run after the next
lose() {
  "${run[@]}" --steps 1000000 --checkpoint-dir lost --checkpoint-every 2000 >stdout 2>stderr &
  local job=$!
  until_there() {
    for _ in $(seq 600); do
      [ -e "$1" ] && return
      sleep 0.05
    done
    fail "$how: no $1: $(cat stderr)"
  }
  local how=$1
  until_there lost/step-2000/index.json
  eval "$how"
  until_there lost/step-4000/index.json
  kill -TERM "$job" 2>/dev/null
  wait "$job"
  local code=$?
  [ "$code" -eq 130 ] || fail "$how: exit code $code instead of 130: $(cat stderr)"
  grep -qE "meshplan: warning: .*/lost: $2" stderr || fail "$how: no '$2' in: $(cat stderr)"
  [ "$(grep -c "warning: .*/lost:" stderr)" -eq 1 ] || fail "$how: not one line: $(cat stderr)"
  [ -e lost/.meshplan-lock ] || fail "$how: the folder is not locked"
  "$meshplan" checkpoint inspect lost >stdout 2>&1 || fail "$how: $(cat stdout)"
  rm -rf lost elsewhere
}
lose "rm -rf lost" "was removed during the run, and the checkpoints in it are gone; it is created again"
lose "mv lost elsewhere" "was moved or unmounted during the run; it is created again; earlier"
mkdir empty
lose "mv lost elsewhere; mv empty lost" "is another folder than at the start of the run"

finish
