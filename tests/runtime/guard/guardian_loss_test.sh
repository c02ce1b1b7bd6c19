#!/bin/sh
# Kills and stops those who guard a job's ranks: the other of the two takes the place, says so, and
# sees a rank die or hang as before; without both of them the job ends and says why.
# Usage: guardian_loss_test.sh PATH_OF_failure_victim [MPIEXEC]
. "$(dirname "$0")/jobs.sh"

ONE="launch localhost:4 last 0 3 one-machine"
MANY="launch localhost:2,127.0.0.1:2 last 0 3 many-machines"  # each rank believes that it is alone

# until_it_holds COMMAND...: false if it never holds
until_it_holds() {
  for _ in $(seq "$patience"); do
    "$@" && return
    sleep 0.1
  done
  return 1
}
are_guarded() { # are_guarded COUNT: so many machines have both
  [ "$(guards meshplan-guard | wc -l)" -eq "$1" ] && [ "$(guards meshplan-spare | wc -l)" -eq "$1" ]
}
said() { # said COUNT PATTERN
  [ "$(grep -Ec "$2" "$output")" -ge "$1" ]
}

start_guarded() { # start_guarded MACHINES ARGUMENTS...: of the victim, until all have both
  machines=$1
  shift
  start_job "$machines" "$victim" "$@"
  until_it_holds are_guarded "$machines" || fail "not all machines have two guardians"
}

rank_process() { # rank_process NUMBER
  ps -eo pid=,comm=,args= | awk -v token="$token" '$2 == "failure_victim" && index($0, token) {print $1}' |
    while read -r process; do
      tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx "PMI_RANK=$1" && echo "$process"
    done
}

replaced='the guardian of its ranks \(pid [0-9]+\) (has ended|was stopped).*takes its place, the job goes on'
second='the second guardian of its ranks \(pid [0-9]+\) (has ended|was stopped).*another one is started, the job goes on'

# expect_replaced SIGNAL NAME PATTERN MACHINES ARGUMENTS...: those of this name, one on each machine,
# get the signal; those who are there then see a rank die, and that is the job's end
expect_replaced() {
  signal=$1 name=$2 pattern=$3
  shift 3
  what="SIG$signal to $name, $1 machines"
  start_guarded "$@"
  lost=$(guards "$name")
  kill -"$signal" $lost
  until_it_holds said "$machines" "$pattern" || fail "$what: no line matches: $pattern"
  until_it_holds are_guarded "$machines" || fail "$what: not all machines have two guardians again"
  for process in $lost; do
    guards "$name" | grep -qx "$process" && fail "$what: $process is still there"
  done
  kill -KILL "$(rank_process 3)"
  expect_all_gone "$what" 1 "job ends: died.*rank 3 on "
}
for signal in KILL STOP; do
  in_background expect_replaced "$signal" meshplan-guard "$replaced" 1 $ONE
  in_background expect_replaced "$signal" meshplan-spare "$second" 1 $ONE
  in_background expect_replaced "$signal" meshplan-guard "$replaced" 4 $MANY
  in_background expect_replaced "$signal" meshplan-spare "$second" 4 $MANY
done

# A guardian that has taken another's place sees a rank that hangs, there and on another machine.
expect_hang() { # expect_hang MACHINES ARGUMENTS...
  start_guarded "$@"
  kill -KILL $(guards meshplan-guard)
  until_it_holds said "$machines" "$replaced" || fail "no line matches: $replaced"
  kill -STOP "$(rank_process 3)"
  expect_all_gone "a rank hangs after a guardian's loss, $machines machines" 1 \
    "job ends: hangs: rank 3 on .*stopped by a signal"
}
in_background expect_hang 1 $ONE
in_background expect_hang 4 $MANY

# Again and again: who took the place is watched as the first one was.
expect_often_replaced() {
  start_guarded 1 $ONE
  for times in 1 2 3; do
    kill -KILL $(guards meshplan-guard)
    until_it_holds said "$times" "$replaced" || fail "loss $times of a guardian: no word"
    until_it_holds are_guarded 1 || fail "loss $times of a guardian: there are no two"
  done
  kill -KILL "$(rank_process 3)"
  expect_all_gone "three losses in a row" 1 "job ends: died.*rank 3 on "
}
in_background expect_often_replaced

# Both of one machine: the one that is stopped cannot step in for the one that is killed.
lose_both() { # lose_both SIGNAL
  guardian=$(guards meshplan-guard | head -1)
  pair="$guardian $(pgrep -P "$guardian")"
  kill -STOP $pair
  [ "$1" = STOP ] || kill -"$1" $pair
}
both='job ends: the guardians of the ranks on [^ ]* \(pid [0-9]+ and [0-9]+\) '
expect_end_without() { # expect_end_without SIGNAL PATTERN MACHINES ARGUMENTS...
  signal=$1 pattern=$2
  shift 2
  start_guarded "$@"
  lose_both "$signal"
  expect_all_gone "SIG$signal to both, $1 machines" 1 "$pattern"
}
in_background expect_end_without KILL "$both.*have ended" 1 $ONE
in_background expect_end_without STOP "$both.*stopped by a signal" 1 $ONE
in_background expect_end_without KILL "$both.*have ended" 4 $MANY
in_background expect_end_without STOP "$both.*stopped by a signal" 4 $MANY

# Ranks that are stopped cannot say it: the launcher misses the guardians.
expect_launcher_notices() {
  start_guarded 1 $ONE
  ranks="$(rank_process 0) $(rank_process 1) $(rank_process 2) $(rank_process 3)"
  kill -STOP $ranks
  for rank in $ranks; do  # a thread that still runs would say it
    while grep -h '^State:' /proc/"$rank"/task/*/status | grep -qv 'T (stopped)'; do sleep 0.05; done
  done
  lose_both KILL
  expect_all_gone "both killed while all ranks are stopped" 1 \
    "job ends: the guardians of ranks on this machine have ended"
}
in_background expect_launcher_notices

# Nobody is left but a guardian that is stopped: it holds the pipes that mpiexec waits for.
expect_launcher_ends_the_last() {
  start_guarded 1 $ONE
  ranks="$(rank_process 0) $(rank_process 1) $(rank_process 2) $(rank_process 3)"
  kill -STOP "$(guards meshplan-guard)"
  kill -KILL "$(guards meshplan-spare)" $ranks
  expect_all_gone "all ranks and the spare killed while the guardian is stopped" 1 \
    "job ends: the guardians of ranks on this machine have ended or were stopped"
}
in_background expect_launcher_ends_the_last

# The whole job is stopped for longer than a rank may hang, guardians run again first: nothing is
# wrong, and what happens later is seen.
expect_no_alarm() {
  start_guarded "$@"
  whole=$(left_over "$token" | awk '{print $1}')
  kill -STOP $whole
  sleep 6
  kill -CONT $(guards meshplan-guard)
  sleep 1
  kill -CONT $whole
  sleep 2
  [ -s "$output" ] && fail "a job that was stopped as a whole: $(cat "$output")"
  kill -KILL "$(rank_process 3)"
  expect_all_gone "stopped as a whole, $machines machines" 1 "job ends: died.*rank 3 on "
}
in_background expect_no_alarm 1 $ONE
in_background expect_no_alarm 4 $MANY

# What is stopped at the end of the job holds the launcher's pipes, but does not hold it up.
expect_end_in_peace() { # expect_end_in_peace NAMES...: KILLED is another name, whose processes are killed
  END_FILE=$output-ends
  export END_FILE
  start_job 1 "$victim" launch localhost:4 wait 0 60 one-machine
  until_it_holds are_guarded 1 || fail "no two guardians"
  for name in "$@"; do kill -STOP $(guards "$name"); done
  [ -z "${KILLED:-}" ] || kill -KILL $(guards "$KILLED")
  : >"$END_FILE"
  until_it_holds said 1 "ranks finish" || fail "the job does not come to its end"
  expect_all_gone "a good end while stopped: $*" 0 ""
}
in_background expect_end_in_peace meshplan-guard
in_background expect_end_in_peace meshplan-spare
in_background expect_end_in_peace meshplan-guard meshplan-spare
KILLED=meshplan-spare in_background expect_end_in_peace meshplan-guard
KILLED=meshplan-guard in_background expect_end_in_peace meshplan-spare

wait
output=/dev/null
for kept in "$folder"/output-*; do
  [ "$(grep -c 'meshplan: the job ends' "$kept")" -le 1 ] || fail "more than one cause: $(cat "$kept")"
done
conclude
