# What every stage of gpu_check.sh is made of; to be sourced. A step is a command with a time limit; its output is
# shown and kept, and its row says how it ended.

begin_stage() { # begin_stage NAME
  stage=$1
  stage_end=$((SECONDS + ${STAGE_SECONDS:-460}))
  results=$OUT/$stage
  failed=0
  rm -rf "$results" && mkdir -p "$results" || exit 2
  : >"$results/steps.tsv"
  echo "== $stage"
  describe_machine >"$results/machine.tsv"
}

# record NAME RESULT SECONDS SAID: one row of steps.tsv, which report.py reads
record() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$(tr '\t' ' ' <<<"$4")" >>"$results/steps.tsv"; }

skip() { # skip NAME REASON
  echo "$2"
  record "$1" skipped 0 "$2"
}

refuse() { # refuse NAME REASON [SECONDS]
  echo "gpu_check: $2" >&2
  record "$1" FAILED "${3:-0}" "$2"
  failed=1
}

# end_group GROUP: what the shell of a step left behind has 5 s to end, as mpiexec ends its ranks
end_group() {
  local _
  for _ in $(seq 25); do
    kill -0 -- "-$1" 2>/dev/null || return 0
    sleep 0.2
  done
  kill -KILL -- "-$1" 2>/dev/null || true
}

# step NAME SECONDS COMMAND...: a program or a function; 77 means skipped. Returns its exit code.
step() {
  local name=$1 limit=$2 left=$((stage_end - SECONDS)) begin=$SECONDS code=0 log=$results/$1.log
  shift 2
  if [ "$left" -le 0 ]; then
    refuse "$name" "not run: the stage's time is over"
    return 124
  fi
  [ "$limit" -le "$left" ] || limit=$left
  echo "-- $name (at most $limit s)"
  # Into a file and not a pipe: what a hung step leaves behind could keep a pipe open for ever.
  timeout --kill-after=5 "$limit" bash -euo pipefail -c '"$@"' "$name" "$@" >"$log" 2>&1 </dev/null &
  local group=$!
  tail -n +1 -s 0.2 -f --pid=$group "$log" 2>/dev/null
  wait $group || code=$?
  end_group $group
  local said
  said=$(grep -v '^[[:space:]]*$' "$log" | tail -n 1 | cut -c -160)
  case $code in
    0) record "$name" passed $((SECONDS - begin)) "$said" ;;
    77) record "$name" skipped $((SECONDS - begin)) "$said" ;;
    124 | 137) refuse "$name" "$name: ended by its time limit of $limit s; last it said: $said" $((SECONDS - begin)) ;;
    *) refuse "$name" "$name: exit code $code: $said" $((SECONDS - begin)) ;;
  esac
  return $code
}

# Prints the table, packs the stage's folder and leaves with its result.
end_stage() {
  echo
  column -t -s "$(printf '\t')" "$results/steps.tsv" 2>/dev/null || cat "$results/steps.tsv"
  local archive=$OUT/gpu_check_$stage.tar.gz
  tar -czf "$archive" -C "$OUT" "$stage" || failed=1
  echo "$stage: $([ $failed -eq 0 ] && echo "nothing failed" || echo FAILED); $archive"
  exit $failed
}

# extract ARCHIVE FOLDER: also where tar finds no xz
extract() {
  mkdir -p "$2"
  tar -xf "$1" -C "$2" 2>/dev/null || "$PYTHON" -m tarfile -e "$1" "$2" >/dev/null
}
