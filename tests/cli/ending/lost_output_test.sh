#!/usr/bin/env bash
# Output that nobody takes: it ends no training job, and is a failure of a command that only prints.
# Usage: lost_output_test.sh PATH_OF_meshplan [MPIEXEC]
set -u
meshplan=$1
mpiexec=${2:-mpiexec}
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"
make_plan tp2.json --tp 2
run=("$meshplan" run tp2.json --data text.txt --steps 400)
losses() { sed -nE 's/.*"kind":"step","step":([0-9]+),"loss":([^,]*),.*/\1 \2/p' "$1"; }
"${run[@]}" --log whole.jsonl --quiet || fail "a run that is heard"
losses whole.jsonl >whole

# check_run NAME CODE LOG PATTERN: the run went on to its end, and its log says what was lost
check_run() {
  [ "$2" -eq 0 ] || fail "$1: exit code $2: $(cat stderr)"
  losses "$3" | cmp -s - whole || fail "$1: not all steps were done"
  [ "$(grep -c '"kind":"output_lost"' "$3")" -eq 1 ] || fail "$1: not said once in the log"
  grep -qE "\"kind\":\"output_lost\".*$4" "$3" || fail "$1: $(grep output_lost "$3")"
}
warned() { [ "$(grep -c "standard output cannot be written: $1; the job goes on" stderr)" -eq 1 ] ||
  fail "not one warning of '$1': $(cat stderr)"; }

# --- standard output of a run
"${run[@]}" --log head.jsonl 2>stderr | head -n 1 >stdout
check_run "| head -n 1" "${PIPESTATUS[0]}" head.jsonl "standard output.*Broken pipe|Broken pipe.*output"
warned "Broken pipe"
[ "$(wc -l <stdout)" -eq 1 ] || fail "head has not got its line"
"${run[@]}" --log full.jsonl >/dev/full 2>stderr
check_run ">/dev/full" $? full.jsonl "No space left on device"
warned "No space left on device"
"${run[@]}" --log closed.jsonl >&- 2>stderr
check_run ">&-" $? closed.jsonl "Bad file descriptor"
warned "Bad file descriptor"

# --- standard error of a run
"${run[@]}" --log error.jsonl >stdout 2>/dev/full || fail "2>/dev/full: exit code $?"
losses error.jsonl | cmp -s - whole || fail "2>/dev/full: not all steps were done"
grep -q "step time" stdout || fail "2>/dev/full: standard output is not as ever"
"${run[@]}" --log both.jsonl >/dev/full 2>/dev/full || fail ">/dev/full 2>&1: exit code $?"
grep -q '"kind":"output_lost".*standard output' both.jsonl || fail ">/dev/full 2>&1: not in the log"
grep -q '"kind":"output_lost".*standard error' both.jsonl || fail ">/dev/full 2>&1: not in the log"
"${run[@]}" --log closed_error.jsonl >stdout 2>&- || fail "2>&-: exit code $?"
losses closed_error.jsonl | cmp -s - whole || fail "2>&-: not all steps were done"

# --- a reader that stops reading holds up nothing, and gets everything in the end
mkfifo slow
# The result is more than a pipe holds.
"$meshplan" run tp2.json --data text.txt --steps 3000 --log slow.jsonl --json >slow 2>stderr &
job=$!
exec 3<slow
for _ in $(seq 3000); do
  grep -q '"kind":"summary"' slow.jsonl 2>/dev/null && break
  sleep 0.02
done
grep -q '"kind":"summary"' slow.jsonl || fail "a reader that does not read holds up the run"
cat <&3 >stdout
exec 3<&-
wait "$job" || fail "a slow reader: exit code $?"
python3 -c 'import json, sys; sys.exit(len(json.load(open("stdout"))["losses"]) != 3000)' ||
  fail "a slow reader has not got everything"

# --- ranks without a launcher of ours
make_plan one.json --gpus 1
env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29533 \
  "$meshplan" run one.json --data text.txt --steps 400 --log rank.jsonl 2>stderr | head -n 1 >stdout
code=${PIPESTATUS[0]}
[ "$code" -eq 0 ] || fail "a rank by torchrun's variables: exit code $code: $(cat stderr)"
[ "$(losses rank.jsonl | wc -l)" -eq 400 ] || fail "a rank by torchrun's variables ends with its reader"
grep -q '"kind":"output_lost"' rank.jsonl || fail "a rank's lost output is not in its log"

# --- commands that only print
"$meshplan" simulate tp2.json >/dev/full 2>stderr
[ $? -eq 1 ] || fail "simulate >/dev/full does not fail"
grep -q "standard output cannot be written" stderr || fail "simulate >/dev/full: $(cat stderr)"
"$meshplan" man >/dev/full 2>stderr
[ $? -eq 1 ] || fail "man >/dev/full, longer than a buffer, does not fail"
"$meshplan" simulate tp2.json >&- 2>stderr
[ $? -eq 1 ] || fail "simulate >&- does not fail"
"$meshplan" simulate tp2.json --trace trace.json >&- 2>stderr
python3 -c 'import json; json.load(open("trace.json"))' || fail "simulate >&- writes its text into a file"
"$meshplan" man 2>stderr | head -n 1 >stdout
[ -s stderr ] && fail "man | head: $(cat stderr)"

finish
