#!/bin/sh
# Kills, stops and blocks a rank of a small job and checks that the job ends: in time, with a failing
# exit code, with the first cause named, and with no process left.
# Usage: failure_test.sh PATH_OF_failure_victim [MPIEXEC]
victim=$1
mpiexec=${2:-mpiexec}
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  sed 's/^/    /' "$output"
  failures=$((failures + 1))
}

# Processes of the job, the dead that nobody has collected yet left out.
left_over() {
  ps -eo pid=,stat=,args= | awk -v token="$1" '$2 !~ /Z/ && index($0, token) && !index($0, "awk")'
}

# expect_end NAME LIMIT_S PATTERN MODE VICTIM TIMEOUT_S MACHINES
expect_end() {
  name=$1 limit=$2 pattern=$3
  shift 3
  token="job-$$-$(date +%s%N)"   # an argument that the victim ignores, to find its processes by
  start=$(date +%s)
  timeout -k 1 60 "$mpiexec" -n 4 "$victim" "$@" "$token" >"$output" 2>&1
  code=$?
  took=$(($(date +%s) - start))
  [ "$code" -ne 0 ] || fail "$name: exit code 0"
  [ "$took" -le "$limit" ] || fail "$name: took $took s, more than $limit"
  grep -Eq "$pattern" "$output" || fail "$name: no line matches: $pattern"
  [ "$(grep -c 'meshplan: the job ends' "$output")" -le 1 ] || fail "$name: more than one cause"
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    [ -z "$(left_over "$token")" ] && break
    sleep 0.2
  done
  [ -z "$(left_over "$token")" ] || fail "$name: left over: $(left_over "$token")"
  echo "$name: exit code $code after $took s"
}

for machines in one-machine many-machines; do
  for rank in 0 2; do
    expect_end "kill -9 rank $rank, $machines" 10 \
      "job ends: died: rank $rank on .*step 3, stage $rank, computing F mb3" \
      kill $rank 2 $machines
    expect_end "SIGSTOP rank $rank, $machines" 12 \
      "job ends: hangs: rank $rank on .*step 3, stage $rank, computing F mb3; stopped by a signal" \
      stop $rank 2 $machines
  done
  expect_end "exit without a word, $machines" 10 "job ends: died: rank 1 on .*step 3, stage 1" \
    exit 1 2 $machines
  expect_end "endless loop, $machines" 12 "job ends: hangs: rank 3 on .*computing F mb3" \
    spin 3 2 $machines
  expect_end "deadlock, $machines" 12 \
    "job ends: deadlock, every rank waits; .*pp recv of F mb3; waiting for rank" \
    deadlock 0 2 $machines
  expect_end "exception, $machines" 10 "meshplan: rank 1 on .*: the victim's own message" \
    throw 1 2 $machines
done

# With a thread beside each rank's own that is inside MPI.
expect_end "kill -9 rank 2, progress thread" 10 "job ends: died: rank 2 on .*computing F mb3" \
  kill 2 2 one-machine progress-thread
expect_end "endless loop, progress thread" 12 "job ends: hangs: rank 3 on .*computing F mb3" \
  spin 3 2 one-machine progress-thread
expect_end "deadlock, progress thread" 12 "job ends: deadlock, every rank waits" \
  deadlock 0 2 one-machine progress-thread
expect_end "exception, progress thread" 10 "meshplan: rank 1 on .*: the victim's own message" \
  throw 1 2 one-machine progress-thread

# Through our own launcher, on two names of this machine, with the exit code of a failed run.
for mode in kill stop throw; do
  timeout -k 1 60 "$victim" launch localhost:2,127.0.0.1:2 $mode 2 2 >"$output" 2>&1
  code=$?
  [ "$code" -eq 1 ] || fail "launched, $mode: exit code $code"
  grep -Eq "rank 2 on 127.0.0.1.*(step 3, stage 2|own message)" "$output" ||
    fail "launched, $mode: the host is not named as given"
  echo "launched, $mode: exit code $code"
done
timeout -k 1 60 "$victim" launch localhost:2,127.0.0.1:2 finish >"$output" 2>&1 ||
  fail "a launched job that ends well failed"

# The interrupt of a user reaches the ranks, and is told from a failure.
"$victim" launch localhost:4 spin 2 50 >"$output" 2>&1 &
launcher=$!
sleep 2
kill -INT $launcher
wait $launcher
code=$?
[ "$code" -eq 130 ] || fail "interrupted: exit code $code"
echo "interrupted: exit code $code"

timeout -k 1 60 "$mpiexec" -n 4 "$victim" finish >"$output" 2>&1 || fail "a job that ends well failed"
[ -s "$output" ] && fail "a job that ends well is not silent"

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
