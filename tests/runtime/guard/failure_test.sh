#!/bin/sh
# Kills, stops and blocks a rank of a small job and checks that the job ends: with a failing exit
# code, with the first cause named, and with no process left.
# Usage: failure_test.sh PATH_OF_failure_victim [MPIEXEC]
. "$(dirname "$0")/jobs.sh"

# expect_end NAME PATTERN MODE VICTIM TIMEOUT_S MACHINES...
expect_end() {
  name=$1 pattern=$2
  shift 2
  timeout -k 1 120 "$mpiexec" -n 4 "$victim" "$@" "$token" >"$output" 2>&1
  code=$?
  [ "$code" -ne 0 ] && [ "$code" -ne 124 ] && [ "$code" -ne 137 ] || fail "$name: exit code $code"
  grep -Eq "$pattern" "$output" || fail "$name: no line matches: $pattern"
  [ "$(grep -c 'meshplan: the job ends' "$output")" -le 1 ] || fail "$name: more than one cause"
  wait_until_gone
  [ -z "$(left_over "$token")" ] || fail "$name: left over: $(left_over "$token")"
  echo "$name: exit code $code"
}

# Through our own launcher, on two names of this machine, with the exit code of a failed run.
expect_launched_end() { # expect_launched_end MODE TIMEOUT_S
  timeout -k 1 120 "$victim" launch localhost:2,127.0.0.1:2 "$1" 2 "$2" >"$output" 2>&1
  code=$?
  [ "$code" -eq 1 ] || fail "launched, $1: exit code $code"
  grep -Eq "rank 2 on 127.0.0.1.*(step 3, stage 2|own message)" "$output" ||
    fail "launched, $1: the host is not named as given"
  echo "launched, $1: exit code $code"
}

# died RANK PLACE: a death is noticed at once and named alone. Where the machine is so busy that MPI
# ends the other ranks before anybody looks, all are named, with where they were.
died() { echo "job ends: died: rank $1 on .*$2|job ends: died at once .*rank $1 on .*$2"; }

# A rank that hangs is noticed after HANGS seconds, in which every other rank must make a step.
hangs=3
for machines in one-machine many-machines; do
  for rank in 0 2; do
    in_foreground expect_end "kill -9 rank $rank, $machines" \
      "$(died $rank "step 3, stage $rank, computing F mb3")" kill $rank 60 $machines
    in_background expect_end "SIGSTOP rank $rank, $machines" \
      "job ends: hangs: rank $rank on .*step 3, stage $rank, computing F mb3; stopped by a signal" \
      stop $rank $hangs $machines
  done
  in_foreground expect_end "exit without a word, $machines" "$(died 1 "step 3, stage 1")" \
    exit 1 60 $machines
  in_background expect_end "endless loop, $machines" \
    "job ends: hangs: rank 3 on .*computing F mb3" spin 3 $hangs $machines
  in_background expect_end "deadlock, $machines" \
    "job ends: deadlock, every rank waits; .*pp recv of F mb3; waiting for rank" \
    deadlock 0 $hangs $machines
  in_background expect_end "SIGSTOP at the end, $machines" \
    "job ends: hangs: rank 2 on .*; stopped by a signal" stop-at-end 2 $hangs $machines
  in_background expect_end "endless loop at the end, $machines" \
    "job ends: hangs: rank [0-3] on .*; finished [0-9.]+ s ago" spin-at-end 2 $hangs $machines
  in_foreground expect_end "exception, $machines" "meshplan: rank 1 on .*: the victim's own message" \
    throw 1 60 $machines
done

# With a thread beside each rank's own that is inside MPI.
in_foreground expect_end "kill -9 rank 2, progress thread" "$(died 2 "step 3, .*computing F mb3")" \
  kill 2 60 one-machine progress-thread
in_foreground expect_end "exception, progress thread" \
  "meshplan: rank 1 on .*: the victim's own message" throw 1 60 one-machine progress-thread
in_background expect_end "endless loop, progress thread" \
  "job ends: hangs: rank 3 on .*computing F mb3" spin 3 $hangs one-machine progress-thread
in_background expect_end "deadlock, progress thread" "job ends: deadlock, every rank waits" \
  deadlock 0 $hangs one-machine progress-thread

in_foreground expect_launched_end kill 60
in_foreground expect_launched_end throw 60
in_background expect_launched_end stop $hangs
wait
grep -qs "job ends: died: rank" "$folder"/output-* || fail "no death was named alone"
timeout -k 1 120 "$victim" launch localhost:2,127.0.0.1:2 finish >"$output" 2>&1 ||
  fail "a launched job that ends well failed"

# ---------------------------------------------------------------- who started the ranks ends

# Shared memory that this test's jobs have left: new since its start, and no process has mapped it.
# Other tests may run at once.
shared_memory() { ls /dev/shm 2>/dev/null | grep -E '^(mpich_shar|ucx_shm|meshplan-)'; }
shared_before=$(shared_memory)
left_shared_memory() {
  for name in $(shared_memory); do
    case " $(echo $shared_before) " in *" $name "*) continue ;; esac
    grep -qsF "/dev/shm/$name" /proc/[0-9]*/maps || echo "$name"
  done
}

proxy_ended='job ends: MPI.s proxy on this machine, hydra_pmi_proxy \(pid [0-9]+\), has ended'
start_job 1 "$victim" launch localhost:4 last 0 50
kill -KILL "$job"
expect_all_gone "kill -9 the launcher" 137 ""
start_job 1 "$victim" launch localhost:4 last 0 50
kill -KILL "$mpi"
expect_all_gone "kill -9 mpiexec" 1 "job ends: its launcher, mpiexec \(pid [0-9]+\),"
start_job 1 "$victim" launch localhost:4 last 0 50
kill -KILL $proxies
expect_all_gone "kill -9 MPI's proxy" 1 "$proxy_ended"
start_job 4 "$victim" launch localhost:2,127.0.0.1:2 last 0 50 many-machines
kill -KILL "${proxies##* }"
expect_all_gone "kill -9 one of two proxies, many machines" 1 "$proxy_ended"
start_job 4 "$victim" launch localhost:2,127.0.0.1:2 last 0 50 many-machines
kill -KILL "$job"
expect_all_gone "kill -9 the launcher, many machines" 137 ""
start_job 1 "$mpiexec" -n 4 "$victim" last 0 50
kill -KILL "$mpi"
expect_all_gone "kill -9 mpiexec, the user's own" 137 ""
start_job 1 "$mpiexec" -n 4 "$victim" last 0 50
kill -KILL $proxies
expect_all_gone "kill -9 MPI's proxy under the user's own mpiexec" "" ""  # it carries all words

# ---------------------------------------------------------------- interrupted, not dead

for signal in INT TERM HUP; do
  start_job 1 "$victim" launch localhost:4 spin 2 50
  kill -$signal "$job"
  expect_all_gone "SIG$signal to the launcher" 130 ""
  grep -q "died\|job ends" "$output" && fail "SIG$signal to the launcher: somebody died"
  start_job 1 "$mpiexec" -n 4 "$victim" last 0 50
  kill -$signal "$job"
  expect_all_gone "SIG$signal to the user's own mpiexec" "" ""
  grep -q "died" "$output" && fail "SIG$signal to mpiexec: somebody died"
done
start_job 1 "$victim" launch localhost:4 last 0 50
kill -TERM "$(pgrep -P $proxies | tail -1)"
expect_all_gone "SIGTERM to a rank" 130 ""
grep -q "died\|job ends" "$output" && fail "SIGTERM to a rank: somebody died"

# ---------------------------------------------------------------- a rank that leaves during start-up

# expect_start_failure NAME PATTERN ARGUMENTS...: of the victim, through our own launcher
expect_start_failure() {
  name=$1 pattern=$2
  shift 2
  "$victim" launch localhost:4 "$@" "$token" >"$output" 2>&1 &
  job=$!
  others=$job  # until it has become the victim, its arguments are this script's
  expect_all_gone "$name" 1 "$pattern"
}
in_background expect_start_failure "exit without an error inside MPI's start" \
  "job ends: died during start-up.*: rank 2 \(pid [0-9]+\), starting MPI" exit-in-init 2
in_background expect_start_failure "kill -9 before MPI starts" \
  "job ends: .*(rank 2, before its first word|before any rank .* had said a word)" early-kill 2
for after in 0.001 0.004 0.016 0.064; do
  in_background expect_start_failure "death $after s into the start" \
    "job ends: died( during start-up.*| at once.*)?: .*rank 2[ ,]|before any rank .* had said a word" \
    kill-in-init 2 $after
done
wait

# ---------------------------------------------------------------- memory that is refused

timeout -k 1 120 "$victim" launch localhost:4 memory 2 50 >"$output" 2>&1
code=$?
[ "$code" -eq 1 ] || fail "refused memory: exit code $code"
grep -Eq "rank 2 on .*: out of memory: an allocation of 1099511627776 bytes .* was refused; it holds" \
  "$output" || fail "refused memory: rank, bytes and limit are not named"
echo "refused memory: exit code $code"

# The kernel's killer, in a group of this test's own with 1 GiB.
group=
limit=
for place in /sys/fs/cgroup /sys/fs/cgroup/memory; do
  [ -n "$limit" ] && break
  group=$place/meshplan-test-$$
  mkdir "$group" 2>/dev/null || continue
  limit=$(ls "$group/memory.max" "$group/memory.limit_in_bytes" 2>/dev/null | head -1)
  [ -n "$limit" ] || rmdir "$group"
done
if [ -n "$limit" ] && echo 1073741824 2>/dev/null >"$limit" &&
  sh -c "echo \$\$ >'$group/cgroup.procs'" 2>/dev/null; then
  echo 0 2>/dev/null >"$group/memory.swap.max"
  timeout -k 1 120 sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$group" \
    "$victim" launch localhost:4 hog 2 50 >"$output" 2>&1
  code=$?
  [ "$code" -eq 1 ] || fail "killed for want of memory: exit code $code"
  grep -Eq "died: rank 2 on .*out-of-memory killer has ended a process of its cgroup.* 1.00 GiB" \
    "$output" || fail "killed for want of memory: rank and limit are not named"
  echo "killed for want of memory: exit code $code"
else
  echo "not tested: the kernel's out-of-memory killer, for no memory cgroup can be made here"
fi
[ -z "$limit" ] || rmdir "$group"

for _ in $(seq "$patience"); do
  [ -z "$(left_shared_memory)" ] && break
  sleep 0.1
done
[ -z "$(left_shared_memory)" ] || fail "shared memory is left: $(left_shared_memory)"

output=$folder/output
timeout -k 1 120 "$mpiexec" -n 4 "$victim" finish >"$output" 2>&1 || fail "a job that ends well failed"
[ -s "$output" ] && fail "a job that ends well is not silent"

conclude
