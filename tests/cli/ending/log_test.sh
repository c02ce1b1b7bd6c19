#!/usr/bin/env bash
# A log has one writer, and is the file that was named. Usage: log_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"
make_plan tp2.json --tp 2
run=("$meshplan" run tp2.json --data text.txt --quiet)
done_by() { "$@" >stdout 2>stderr || fail "$*: exit code $?: $(cat stdout stderr)"; }
lines() { grep -c "\"kind\":\"$1\"" "$2"; }

# --- while a run writes its log, another one, new or resumed, is told so before it starts
done_by "${run[@]}" --steps 2 --checkpoint-dir saved
"${run[@]}" --steps 100000 --log log.jsonl 2>long.stderr &
long=$!
for _ in $(seq 300); do
  [ -f log.jsonl ] && [ "$(lines step log.jsonl)" -gt 0 ] && break
  sleep 0.1
done
expect 2 "^meshplan: log.jsonl: another run writes this log; name another file$" "${run[@]}" --steps 2 --log log.jsonl
expect 2 "log.jsonl: another run writes this log" "${run[@]}" --steps 3 --decay-steps 2 --resume saved --log ./log.jsonl
kill -TERM $long
wait $long
[ $? -eq 130 ] || fail "the run whose log was wanted: $(cat long.stderr)"
[ "$(lines run log.jsonl)" -eq 1 ] || fail "not one run in the log: $(lines run log.jsonl)"
head -n 1 log.jsonl | grep -q '"kind":"run"' || fail "the log's beginning is lost"

# --- once it has ended, another run may: a new one begins the log, a resumed one goes on with it
done_by "${run[@]}" --steps 2 --log log.jsonl
[ "$(lines run log.jsonl) $(lines step log.jsonl)" = "1 2" ] || fail "a new run's log: $(cat log.jsonl)"
done_by "${run[@]}" --steps 3 --decay-steps 2 --resume saved --log log.jsonl
[ "$(lines run log.jsonl) $(lines step log.jsonl)" = "2 3" ] || fail "a resumed run's log: $(cat log.jsonl)"

# --- a link leads to a file that the user did not name
echo precious >precious
ln -s precious link
ln -s nothing dangling
for name in link dangling; do
  expect 2 "^meshplan: $name: a log is not written through a link; name the file itself: (precious|nothing)$" \
    "${run[@]}" --steps 2 --log $name
done
[ "$(cat precious)" = precious ] || fail "a log followed a link"
[ ! -e nothing ] || fail "a log made a file that a link leads to"

# --- what holds no text
done_by "${run[@]}" --steps 2 --log /dev/null
mkfifo pipe
expect 1 "pipe: cannot be written: it is a FIFO \(named pipe\) that nobody reads" "${run[@]}" --steps 2 --log pipe
cat pipe >read &
reader=$!
done_by "${run[@]}" --steps 2 --log pipe
wait $reader
[ "$(lines run read) $(lines step read)" = "1 2" ] || fail "a pipe's reader: $(cat read)"
expect 0 '^\{"kind":"run"' "${run[@]}" --steps 2 --log /dev/stdout
finish
