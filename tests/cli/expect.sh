# What the tests of the command share; to be sourced. Makes an empty folder $work and goes there.
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}

# check_output -E|-F CODE PATTERN COMMAND...: the exit code (or several, as 1|2), and a pattern of
# grep in what it prints
check_output() {
  local kind=$1 code=$2 pattern=$3
  shift 3
  timeout -k 1 60 "$@" >stdout 2>stderr
  local actual=$?
  [[ "|$code|" = *"|$actual|"* ]] || fail "$*: exit code $actual instead of $code: $(cat stdout stderr)"
  grep -q "$kind" -- "$pattern" stdout stderr || fail "$*: no '$pattern' in: $(cat stdout stderr)"
}

# expect CODE PATTERN COMMAND...: the exit code, and an extended regular expression in its output
expect() { check_output -E "$@"; }

# Processes of this test's jobs: their arguments name the folder. The dead that nobody has collected
# yet are left out.
ranks() {
  ps -eo pid=,stat=,args= |
    awk -v folder="$work" '$2 !~ /Z/ && index($0, folder "/") && !/awk|mpiexec|hydra/ {print $1}'
}

finish() {
  [ "$failures" -eq 0 ] && echo "all passed"
  exit $((failures > 0))
}
