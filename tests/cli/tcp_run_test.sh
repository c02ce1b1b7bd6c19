#!/usr/bin/env bash
# Ranks that torchrun's variables place train by TCP: to the bit as under MPI, and as one job when
# something is wrong. Usage: tcp_run_test.sh PATH_OF_meshplan PATH_OF_tcp_ranks.sh
set -u
meshplan=$1
tcp_ranks=$2
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
source "$tests/tiny_training.sh"

losses() {
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["losses"])' "$1"
}

make_plan tp2.json --tp 2
make_plan pp2dp2.json --pp 2 --dp 2

# --- the same numbers as under MPI
for case in "2 tp2.json" "4 pp2dp2.json"; do
  read -r ranks file <<<"$case"
  timeout 60 "$meshplan" run "$file" --data text.txt --steps 5 --json >mpi.json 2>stderr ||
    fail "$file under MPI: $(cat stderr)"
  timeout 60 "$tcp_ranks" "$ranks" "$meshplan" run "$file" --data text.txt --steps 5 --json \
    >tcp.json 2>stderr || fail "$file over TCP: $(cat stderr)"
  [ -n "$(losses tcp.json)" ] && [ "$(losses tcp.json)" = "$(losses mpi.json)" ] ||
    fail "$file: losses over TCP $(losses tcp.json) are not those under MPI $(losses mpi.json)"
done

# --- as many ranks as the plan has
timeout 60 "$tcp_ranks" 3 "$meshplan" run tp2.json --data text.txt --steps 1 >stdout 2>stderr &&
  fail "3 ranks run a plan of 2"
grep -q "3" stderr || fail "no word about 3 ranks: $(cat stderr)"

# --- a variable that is missing is named
RANK=0 WORLD_SIZE=2 timeout 20 "$meshplan" run tp2.json --data text.txt >stdout 2>stderr
[ $? -eq 2 ] || fail "half of torchrun's variables: no error"
grep -q "LOCAL_RANK is not set" stderr || fail "no word about LOCAL_RANK: $(cat stderr)"

# --- a rank that dies takes the job with it, and is named
timeout 60 "$tcp_ranks" 2 "$meshplan" run tp2.json --data text.txt --steps 100000 \
  >stdout 2>stderr &
job=$!
victim=
for _ in $(seq 100); do
  sleep 0.1
  grep -q "loss" stdout || continue
  victim=$(pgrep -f "$meshplan run tp2.json --data text.txt --steps 100000" |
    while read -r process; do
      tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx RANK=1 && echo "$process"
    done | head -1)
  [ -n "$victim" ] && break
done
if [ -z "$victim" ]; then
  fail "rank 1 was not found: $(cat stdout stderr)"
else
  kill -9 "$victim"
fi
wait "$job" && fail "the job survives rank 1"
grep -q "rank 1" stderr || fail "nobody names rank 1: $(cat stderr)"

# --- who guards the ranks is killed or stopped: another takes the place; without both the job ends
guards() {  # guards NAME: meshplan-guard, or meshplan-spare that stands by
  ps -eo pid=,stat=,comm=,args= | awk -v folder="$work" -v name="$1" \
    '$2 !~ /Z/ && $3 == name && index($0, folder "/") {print $1}'
}
until_it_holds() {  # until_it_holds COMMAND...: a minute at most
  for _ in $(seq 600); do
    "$@" && return
    sleep 0.1
  done
  fail "never: $*: $(cat stdout stderr)"
}
are_guarded() { [ "$(guards meshplan-guard | wc -l) $(guards meshplan-spare | wc -l)" = "1 1" ]; }
start_guarded() {
  : >stdout
  "$tcp_ranks" 2 "$meshplan" run "$work/tp2.json" --data "$work/text.txt" --steps 1000000 \
    >stdout 2>stderr &
  job=$!
  until_it_holds grep -q loss stdout
  until_it_holds are_guarded
}
expect_loss_said() {  # expect_loss_said PATTERN: as the cause of the job's end
  until_it_holds grep -Eq "$1" stderr
  wait "$job" && fail "the job survives: $1"
  [ "$(grep -c "job ends" stderr)" -eq 1 ] || fail "more than one cause: $(cat stderr)"
  until_it_holds eval '[ -z "$(ranks)" ]'
}
for signal in KILL STOP; do
  start_guarded
  kill -$signal $(guards meshplan-guard)
  until_it_holds grep -q "the guardian of its ranks .* takes its place, the job goes on" stderr
  until_it_holds are_guarded
  kill -KILL $(pgrep -P "$job" -f "$work/tp2.json" | tail -1)
  expect_loss_said "job ends: died: rank 1 on "
  start_guarded
  pair="$(guards meshplan-guard) $(guards meshplan-spare)"
  kill -STOP $pair
  [ $signal = STOP ] || kill -$signal $pair
  expect_loss_said "job ends: the guardians of the ranks on .* (have ended|do not answer)"
done

# --- who started the ranks is killed: they end, too; with nohup they were meant to stay
orphaned_job() {  # orphaned_job COMMAND...: starts it, waits until it trains, kills it
  : >stdout
  "$@" "$tcp_ranks" 2 "$meshplan" run "$work/tp2.json" --data "$work/text.txt" --steps 1000000 \
    >stdout 2>stderr &
  job=$!
  for _ in $(seq 150); do
    grep -q "loss" stdout && break
    sleep 0.1
  done
  grep -q "loss" stdout || fail "the job does not start: $(cat stdout stderr)"
  sleep 0.5
  kill -KILL "$job"
  wait "$job" 2>/dev/null
}
orphaned_job env
for _ in $(seq 100); do
  [ -z "$(ranks)" ] && break
  sleep 0.1
done
[ -z "$(ranks)" ] || fail "ranks outlive the process that started them: $(ranks)"
grep -q "job ends: the process that started its ranks, .*has ended" stderr ||
  fail "nobody says why: $(cat stderr)"
kill -KILL $(ranks) 2>/dev/null
orphaned_job nohup
sleep 2
[ -n "$(ranks)" ] || fail "nohup does not keep ranks alive: $(cat stderr)"
kill -KILL $(ranks) 2>/dev/null

finish
