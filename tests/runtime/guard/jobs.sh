# What tests of failing jobs share; to be sourced by a script of arguments PATH_OF_failure_victim
# [MPIEXEC]. Makes an empty folder.
victim=$1
mpiexec=${2:-mpiexec}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
output=$folder/output
failed=$folder/failed  # exists if a check has failed, also one in the background

fail() {
  echo "FAILED: $*"
  sed 's/^/    /' "$output"
  : >"$failed"
}

# Processes of the job, the dead that nobody has collected yet left out: those with the token among
# their arguments, and those whose numbers are in $others.
others=
left_over() {
  ps -eo pid=,stat=,args= | awk -v token="$1" -v others=" $others " \
    '$2 !~ /Z/ && (index($0, token) || index(others, " " $1 " ")) && !index($0, "awk")'
}

# What must happen at last has this long, in 0.1 s: only what never happens fails, also on a slow machine.
patience=600

wait_until_gone() {
  tries=0
  while [ -n "$(left_over "$token")" ] && [ "$tries" -lt "$patience" ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
}

new_job() { # new_job NUMBER: sets `token`, an argument that the victim ignores, to find its processes by
  token="job-$$-$1-$(date +%s%N)"
  output=$folder/output-$1
}

jobs=0
in_foreground() { # in_foreground CHECK ARGUMENTS...
  jobs=$((jobs + 1))
  ( new_job "$jobs" && "$@" )
}

# Up to four jobs wait at once for the end of their time without progress.
waiting=0
in_background() { # in_background CHECK ARGUMENTS...
  jobs=$((jobs + 1))
  ( new_job "$jobs" && "$@" ) &
  waiting=$((waiting + 1))
  [ $((waiting % 4)) -ne 0 ] || wait
}

# start_job COUNT COMMAND...: runs it in the background until COUNT guardians watch its ranks; sets
# `job`, `token`, `mpi` (mpiexec) and `proxies`
start_job() {
  count=$1
  shift
  jobs=$((jobs + 1))
  new_job "$jobs"
  "$@" "$token" >"$output" 2>&1 &
  job=$!
  for _ in $(seq "$patience"); do
    watched=$(guards meshplan-guard | wc -l)
    [ "$watched" -ge "$count" ] && break
    sleep 0.1
  done
  [ "$watched" -ge "$count" ] || fail "the job does not start: $*"
  mpi=$(pgrep -P "$job" mpiexec || echo "$job")
  proxies=$(pgrep -P "$mpi" | paste -sd ' ')
  others="$mpi $proxies"
}

# expect_all_gone NAME CODE PATTERN: the job ends with CODE (or any, if empty), no process is left,
# and a line matches (unless PATTERN is empty)
expect_all_gone() {
  wait_until_gone
  [ -z "$(left_over "$token")" ] || fail "$1: left over: $(left_over "$token")"
  kill -KILL $(left_over "$token" | awk '{print $1}') 2>/dev/null
  wait "$job" 2>/dev/null
  code=$?
  [ -z "$2" ] || [ "$code" -eq "$2" ] || fail "$1: exit code $code instead of $2"
  [ -z "$3" ] || grep -Eq "$3" "$output" || fail "$1: no line matches: $3"
  echo "$1: exit code $code, all gone"
}

# guards NAME: processes of the job's guardians (meshplan-guard) or of those who stand by
# (meshplan-spare)
guards() {
  ps -eo pid=,stat=,comm=,args= |
    awk -v name="$1" -v token="$token" '$2 !~ /Z/ && $3 == name && index($0, token) {print $1}'
}

conclude() { # of the script
  [ ! -e "$failed" ] || exit 1
  echo "all passed"
}
