#!/usr/bin/env bash
# Signals to a training job: whatever process gets them, the running step ends, the state is saved if
# there is a place for it, and nothing is left.
# Usage: signals_test.sh PATH_OF_meshplan [MPIEXEC]
# Of the pairs of a signal and a process each situation tries a third, with MESHPLAN_CASES=all all.
set -um  # a process group for every job, as a shell at a terminal makes it
meshplan=$1
mpiexec=${2:-mpiexec}
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"
source "$tests/ending/job_processes.sh"
make_plan tp2.json --tp 2
plan=$work/tp2.json
steps=1200

# start COMMAND...: in the background, until a step is done. Sets `job`.
start() {
  : >stdout
  "$@" >stdout 2>stderr &
  job=$!
  for _ in {1..3000}; do
    grep -q '^ *1 ' stdout && return
    sleep 0.02
  done
  fail "the job does not start: $(cat stdout stderr)"
}

start_run() { start "$meshplan" run "$plan" --data text.txt --steps "$steps" "$@"; }

# expect_end NAME CODE PATTERN: the job ends with this code and a line
expect_end() {
  local tries=0
  while kill -0 "$job" 2>/dev/null && [ $((tries++)) -lt 1500 ]; do sleep 0.02; done
  kill -0 "$job" 2>/dev/null && fail "$1: still running after 30 s" && kill -KILL "$job"
  wait "$job" 2>/dev/null
  local code=$?
  [ "$code" -eq "$2" ] || fail "$1: exit code $code instead of $2: $(cat stderr)"
  [ -z "$3" ] || grep -qE -- "$3" stderr || fail "$1: no '$3' in: $(cat stderr)"
  grep -E "died|job ends" stderr && fail "$1: an interruption is taken for a death"
  wait_until_gone
  [ -z "$(ranks)" ] || fail "$1: left over: $(ps -o pid=,stat=,args= -p "$(ranks | paste -sd,)")"
}

send() {  # send SIGNAL TARGET
  case $2 in
    launcher) kill -"$1" "$job" ;;
    rank) kill -"$1" "$(rank_processes | tail -1)" ;;
    mpiexec) kill -"$1" "$(mpiexec_of "$job")" ;;
    group) kill -"$1" -- "-$job" ;;
    all) pkill -"$1" -f "$plan" ;;
  esac
}

pair=0
is_tried() {  # is_tried REST: this pair, by its number modulo 3
  [ "${MESHPLAN_CASES:-}" = all ] || [ $((pair % 3)) -eq "$1" ]
}

losses() {  # losses LOG: of its steps, exactly
  sed -nE 's/.*"kind":"step","step":([0-9]+),"loss":([^,]*),.*/\1 \2/p' "$1"
}

"$meshplan" run "$plan" --data text.txt --steps "$steps" --log whole.jsonl --quiet ||
  fail "an uninterrupted run"
losses whole.jsonl >whole

# --- every signal to every process; some jobs go on from what was saved, some have no place to save to
for signal in TERM INT HUP; do
  for target in launcher rank mpiexec group all; do
    pair=$((pair + 1))
    name="SIG$signal to $target"
    folder="saved in $signal $target"  # a name that a shell would split
    # mpiexec itself does not hear a hang-up.
    [ "$signal$target" = HUPmpiexec ] && heard=TERM || heard=$signal
    start_run --checkpoint-dir "$folder" --log "$folder.jsonl"
    send "$signal" "$target"
    [ "$heard" = "$signal" ] || send "$heard" "$target"
    expect_end "$name" 130 "interrupted by SIG$heard after step [0-9]+; saved $folder/step-[0-9]+$"
    step=$(sed -nE "s/.*interrupted by SIG$heard after step ([0-9]+); saved .*/\1/p" stderr)
    [ -f "$folder/step-$step/index.json" ] || fail "$name: no checkpoint of step $step"
    [ "$(losses "$folder.jsonl" | wc -l)" = "$step" ] || fail "$name: not the step that is named"
    echo "$name"
    if is_tried 0; then
      resume=$(sed -nE 's/^meshplan: to go on: //p' stderr)
      bash -c "$resume" >stdout 2>stderr || fail "$name: '$resume': $(cat stderr)"
      losses "$folder.jsonl" | cmp -s - whole || fail "$name: the losses of a resumed run are others"
    fi
    if is_tried 1; then
      start_run
      send "$signal" "$target"
      [ "$heard" = "$signal" ] || send "$heard" "$target"
      expect_end "$name, no folder" 130 \
        "interrupted by SIG$heard after step [0-9]+; nothing was saved: with --checkpoint-dir"
    fi
  done
done

# --- one action that signals twice is one request: closing a terminal, `timeout`
start_run --checkpoint-dir twice
kill -HUP "$job"
kill -HUP "$job"
expect_end "two hang-ups at once" 130 "interrupted by SIGHUP after step [0-9]+; saved"
timeout --preserve-status 2 "$meshplan" run "$plan" --data text.txt --steps 1000000 \
  --checkpoint-dir limited >stdout 2>stderr
[ $? -eq 130 ] || fail "timeout: not 130"
grep -qE "interrupted by SIGTERM after step [0-9]+; saved" stderr || fail "timeout: $(cat stderr)"

# --- a second signal does not wait for the step, which never ends here
for signal in TERM INT HUP; do
  pair=$((pair + 1))  # the next signal's thirds are others
  for target in launcher rank group; do
    pair=$((pair + 1))
    is_tried 0 || continue
    steps=1000000 start_run --checkpoint-dir "second-$signal-$target" --checkpoint-every 100
    until ls -d "second-$signal-$target"/step-*00 >/dev/null 2>&1; do sleep 0.02; done
    kill -STOP "$(rank_processes | head -1)"
    sleep 0.2
    send "$signal" "$target"
    sleep 0.8
    kill -0 "$job" 2>/dev/null || fail "the first SIG$signal to $target does not wait for the step"
    send "$signal" "$target"
    expect_end "a second SIG$signal to $target" 130 \
      "interrupted by .*; what came after step [0-9]+ was not saved"
    expect 0 "intact|complete|step" "$meshplan" checkpoint inspect "second-$signal-$target"
  done
done

# --- nothing has been trained yet
for signal in TERM INT HUP; do
  for target in launcher rank; do
    pair=$((pair + 1))
    is_tried 0 || continue
    "$meshplan" run "$plan" --data text.txt --steps 1000000 --checkpoint-dir "early-$signal-$target" \
      >stdout 2>stderr &
    job=$!
    until [ -n "$(rank_processes)" ]; do sleep 0.01; done
    send "$signal" "$target"
    expect_end "SIG$signal to a $target that starts" 130 "interrupted by .*"
  done
done

# --- nohup
: >stdout  # else the line of the job before may be taken for this one's
(trap '' HUP; exec "$meshplan" run "$plan" --data text.txt --steps 1000000) >stdout 2>stderr &
job=$!
until grep -q '^ *1 ' stdout; do sleep 0.02; done
for target in launcher rank mpiexec; do send HUP "$target"; done
sleep 0.5
kill -0 "$job" || fail "who ignores a hang-up is ended by it"
send TERM launcher
expect_end "SIGTERM after an ignored hang-up" 130 "interrupted by SIGTERM after step"

# --- Ctrl-Z and fg
start_run --checkpoint-dir suspended
send TSTP group
sleep 0.5
send CONT group
send INT group
expect_end "SIGINT after SIGTSTP and SIGCONT" 130 "interrupted by SIGINT after step [0-9]+; saved"

# --- an mpiexec of the user's own. Of MPICH's before 4.1 the case of one rank is the hardest: by itself
# mpiexec would end with 0 (proxy_exit_code.hpp).
make_plan one.json
for signal in TERM INT; do
  start "$mpiexec" -n 1 "$meshplan" run "$work/one.json" --data "$work/text.txt" --steps 1000000
  send "$signal" launcher
  expect_end "SIG$signal to the user's own mpiexec of one rank" 130 "nothing was saved"
done
for signal in TERM INT; do
  start "$mpiexec" -n 2 "$meshplan" run "$plan" --data "$work/text.txt" --steps 1000000 \
    --checkpoint-dir "$work/own-$signal"
  send "$signal" launcher
  expect_end "SIG$signal to the user's own mpiexec" 130 \
    "interrupted by SIG$signal after step [0-9]+; saved .*own-$signal/step-"
  start "$mpiexec" -n 2 "$meshplan" run "$plan" --data "$work/text.txt" --steps 1000000
  send "$signal" rank
  expect_end "SIG$signal to a rank of the user's own mpiexec" 130 "nothing was saved"
done

# --- ranks by torchrun's variables
torchrun_rank() {  # torchrun_rank RANK: becomes it
  exec env RANK="$1" LOCAL_RANK="$1" WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29547 \
    "$meshplan" run "$plan" --data "$work/text.txt" --steps 1000000 --checkpoint-dir torchrun
}
for signal in TERM INT HUP; do
  rm -rf torchrun
  torchrun_rank 1 >stdout1 2>stderr1 &
  other=$!
  start torchrun_rank 0
  kill -"$signal" -- "-$other"
  expect_end "SIG$signal to a rank of torchrun's" 130 "interrupted by SIG$signal after step [0-9]+; saved"
  wait "$other"
  [ $? -eq 130 ] || fail "SIG$signal to a rank of torchrun's: it ends with another exit code"
done

# --- commands that have nothing to save end at once
make_plan eight.json --tp 2 --pp 2 --dp 2  # two ranks would be certified before the signal comes
mkdir tmp
export TMPDIR=$work/tmp  # the arguments of their ranks name a folder in there
for signal in TERM INT HUP; do
  for command in "trial $plan --data $work/text.txt --steps 1000000" \
    "calibrate --out $work/cluster.json" "certify $work/eight.json" \
    "tune --model $work/model.json --data $work/text.txt --gpus 2 --global-batch 4 --seq-len 32 --folder $work/tuned"; do
    pair=$((pair + 1))
    is_tried 0 || continue
    # shellcheck disable=SC2086
    "$meshplan" $command >stdout 2>stderr &
    job=$!
    # One look at all processes, for a busy machine looks slowly; certify is over in two seconds.
    until pgrep -f "$TMPDIR/" >/dev/null || ! kill -0 "$job" 2>/dev/null; do sleep 0.02; done
    [ "${command%% *}" = certify ] || sleep 0.3
    send "$signal" group
    expect_end "SIG$signal to $command" 130 ""
  done
done

finish
