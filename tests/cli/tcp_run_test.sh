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
