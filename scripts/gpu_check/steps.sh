# What a run of gpu_check.sh is made of; to be sourced. A step is a command with a time limit; its output is shown and
# kept, and its row says how it ended. Steps come in groups, each with a budget that its steps share.

# begin_run NAME SECONDS [FROM]: work goes into $results, and after each step all that is worth keeping into one archive.
# With FROM, the name of a group or step, what came before it keeps its rows and is not run again.
begin_run() {
  run=$1
  from=${3:-}
  run_end=$((SECONDS + ${RUN_SECONDS:-$2}))
  results=$WORK/$run
  archive=$OUT/gpu_check_$run.tar.gz
  if [ -n "$from" ]; then
    [ -f "$results/steps.tsv" ] || { echo "gpu_check: --from $from: $results has no run to go on with" >&2; exit 2; }
    mv "$results/steps.tsv" "$results/steps.before.tsv"
  else
    rm -rf "$results"
  fi
  mkdir -p "$results" "$OUT" || exit 2
  : >"$results/steps.tsv"
  echo "== $run"
  describe_machine >"$results/machine.tsv"
  [ -n "$from" ] || keep
}

# keep: the archive as it stands. Under its name only when it is whole; tables, logs and plans, but no data.
keep() {
  tar -czf "$archive.part" -C "$WORK" --exclude='*.u16' --exclude='*.u32' --exclude='*.safetensors' "$run" &&
    mv "$archive.part" "$archive"
}

# group NAME SECONDS: what the steps that follow have together
group() {
  current_group=$1
  group_end=$((SECONDS + $2))
}

# record NAME RESULT SECONDS SAID: one row of steps.tsv, which report.py reads
record() {
  printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$(tr '\t' ' ' <<<"$4")" "$current_group" >>"$results/steps.tsv"
  keep
}

skip() { # skip NAME REASON
  echo "$1: skipped: $2"
  record "$1" skipped 0 "$2"
}

refuse() { # refuse NAME REASON [SECONDS]
  echo "gpu_check: $1: $2" >&2
  record "$1" FAILED "${3:-0}" "$2"
}

# end_processes GROUP: what the shell of a step left behind has 3 s to end, as mpiexec ends its ranks
end_processes() {
  local _
  for _ in $(seq 15); do
    kill -0 -- "-$1" 2>/dev/null || return 0
    sleep 0.2
  done
  kill -KILL -- "-$1" 2>/dev/null || true
}

# comes_later NAME: true before the step, or the group, from which this run goes on; its row stays what it was.
comes_later() {
  [ -n "$from" ] || return 1
  if [ "$from" = "$1" ] || [ "$from" = "$current_group" ]; then
    from=
    rm -f "$results/steps.before.tsv"
    return 1
  fi
  grep -P "^\Q$1\E\t" "$results/steps.before.tsv" >>"$results/steps.tsv" || true
}

# step NAME SECONDS COMMAND...: a program or a function; 77 means skipped. Returns its exit code.
step() {
  local name=$1 limit=$2 begin=$SECONDS code=0 log=$results/$1.log end
  shift 2
  ! comes_later "$name" || return 0
  end=$((group_end < run_end ? group_end : run_end))
  if [ $((end - SECONDS)) -le 0 ]; then
    refuse "$name" "not run: the time of $([ $run_end -le $SECONDS ] && echo "$run" || echo "$current_group") is over"
    return 124
  fi
  [ "$limit" -le $((end - SECONDS)) ] || limit=$((end - SECONDS))
  echo "-- $name (at most $limit s)"
  # Into a file and not a pipe: what a hung step leaves behind could keep a pipe open for ever.
  current_step=$name
  timeout --kill-after=3 "$limit" bash -euo pipefail -c '"$@"' "$name" "$@" >"$log" 2>&1 </dev/null &
  local processes=$!
  tail -n +1 -s 0.05 -f --pid=$processes "$log" 2>/dev/null
  wait $processes || code=$?
  end_processes $processes
  local said
  said=$(grep -v '^[[:space:]]*$' "$log" | tail -n 1 | cut -c -160)
  case $code in
    0) record "$name" passed $((SECONDS - begin)) "$said" ;;
    77) record "$name" skipped $((SECONDS - begin)) "$said" ;;
    124 | 137) refuse "$name" "ended by its time limit of $limit s; last it said: $said" $((SECONDS - begin)) ;;
    *) refuse "$name" "exit code $code: $said" $((SECONDS - begin)) ;;
  esac
  return $code
}

# passed: nothing has failed up to here
passed() { ! grep -qP '^\S+\tFAILED\t' "$results/steps.tsv"; }

# Prints the table and leaves with the result.
end_run() {
  if [ -n "$from" ]; then
    mv "$results/steps.before.tsv" "$results/steps.tsv"
    keep
    echo "gpu_check: --from $from: $run has no such step or group; it has $(cut -f 1,5 "$results/steps.tsv" | tr '\t' '\n' | awk '!n[$0]++' | paste -sd' ')" >&2
    exit 2
  fi
  echo
  cut -f 1-4 "$results/steps.tsv" | column -t -s "$(printf '\t')" 2>/dev/null || cat "$results/steps.tsv"
  keep
  echo "$run: $(passed && echo "nothing failed" || echo FAILED) in $SECONDS s; $archive"
  passed
  exit
}

# extract ARCHIVE FOLDER: also where tar finds no xz
extract() {
  mkdir -p "$2"
  tar -xf "$1" -C "$2" 2>/dev/null || "$PYTHON" -m tarfile -e "$1" "$2" >/dev/null 2>&1
}
