#!/usr/bin/env bash
# A run that loses ranks and goes on: ten losses in a row, the same losses as undisturbed runs, hosts that come and go,
# and what ends it.
# Usage: elastic_test.sh PATH_OF_meshplan [MPIEXEC]
set -u
meshplan=$1
mpiexec=${2:-mpiexec}
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"
"$meshplan" simulate --model model.json --cluster cpu-host --global-batch 12 --seq-len 32 --dp 4 --out dp4.json >/dev/null ||
  exit 1
# Large enough for four ranks to be faster than three.
"$meshplan" simulate --model model.json --cluster cpu-host --global-batch 48 --seq-len 64 --dp 4 --out large.json >/dev/null ||
  exit 1
two_hosts=localhost:2,127.0.0.1:2

# elastic STEPS ARGUMENTS...: in the background; sets `job`. `plan`: its file; `retry`: seconds until a
# host is tried again; `most`: failures that leave a host out
elastic() {
  local steps=$1
  shift
  timeout -k 1 300 "$meshplan" run "$work/${plan:-dp4.json}" --data "$work/text.txt" --steps "$steps" \
    --checkpoint-every 5 --log "$work/log.jsonl" --node-failures "${most:-1000}" --retry-after "${retry:-1}" "$@" >stdout 2>stderr &
  job=$!
}

# Lines of steps in the log, of all jobs.
steps_done() { cat log.jsonl 2>/dev/null | grep -c '"kind":"step"'; }

# await_steps COUNT: until the log has so many lines of steps
await_steps() {
  for _ in $(seq 600); do
    [ "$(steps_done)" -ge "$1" ] && return
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  fail "the run does not get to $1 steps in its log: $(cat stderr)"
}

# one_rank: a process of the job that is a rank
one_rank() {
  ps -eo pid=,ppid=,comm= | awk '
    {parent[$1] = $2; name[$1] = $3}
    END {for (pid in name) if (name[pid] == "meshplan" && name[parent[pid]] == "hydra_pmi_proxy") print pid}' |
    while read -r pid; do tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q "$work" && echo "$pid"; done | shuf -n 1
}

await_end() { # await_end CODE WHAT
  wait "$job"
  local code=$?
  [ "$code" -eq "$1" ] || fail "$2: exit code $code instead of $1: $(cat stderr)"
  [ -z "$(ranks)" ] || fail "$2: left over: $(ranks)"
}

# ---------------------------------------------------------------- ten losses in a row

plan=large.json elastic 1500 --elastic
losses() { grep -c "elastic: failed after step" stderr; }
# A kill may meet a job that has stopped already, to move: that is no loss.
for _ in $(seq 30); do
  [ "$(losses)" -lt 10 ] || break
  await_steps $(($(steps_done) + 3))
  kill -9 "$(one_rank)" 2>/dev/null
  sleep 0.5
done
await_end 0 "ten losses"
[ "$(losses)" -eq 10 ] || fail "not ten losses: $(cat stderr)"
grep -Eq "goes on from step [0-9]+ or later with 4 ranks: the run's own plan" stderr || fail "the run does not grow back: $(cat stderr)"
expect 0 "^checkpoints: done$" "$meshplan" status
expect 0 "dp4 mbs[0-9]+ on 4 ranks \(1 to 4\), started with .*large.json" "$meshplan" status
expect 0 "^step +1500 of 1500" "$meshplan" status
expect 0 '"state": "done"' "$meshplan" status --json
python3 - <<'PY' || fail "steps are missing in the log"
import json
steps = [json.loads(line)["step"] for line in open("log.jsonl") if '"kind":"step"' in line]
assert set(steps) == set(range(1, 1501)), sorted(set(range(1, 1501)) - set(steps))[:5]
assert all(after <= before + 1 for before, after in zip(steps, steps[1:]))
assert any('"kind":"elastic"' in line for line in open("log.jsonl"))
PY

# ---------------------------------------------------------------- the losses are those of an undisturbed run of the new plan

rm -r checkpoints log.jsonl
retry=1000 elastic 300 --elastic --memory-every 0
await_steps 12
kill -9 "$(one_rank)"
await_end 0 "one loss"
grep -q "elastic: goes on from step [0-9]* or later with 3 ranks: dp4" stderr || fail "not on three ranks: $(cat stderr)"
from=$(sed -n 's/.*goes on from step \([0-9]*\) .*/\1/p' stderr)
expect 0 "on 3 ranks \(1 to 4\), started with .*dp4.json, runs checkpoints/job-plan.json" "$meshplan" status
expect 0 "" "$meshplan" run checkpoints/job-plan.json --data text.txt --steps 300 --resume "checkpoints/step-$from" \
  --checkpoint-dir again --log again.jsonl
expect 0 "" "$meshplan" run dp4.json --data text.txt --steps 300 --resume "checkpoints/step-$from" \
  --checkpoint-dir before --log before.jsonl
python3 - "$from" <<'PY' || fail "losses after the loss of a rank"
import json, sys
def losses(name):
    found = {}
    for line in open(name):
        step = json.loads(line)
        if step["kind"] == "step":
            found[step["step"]] = step["loss"]
    return found
whole, again, before = losses("log.jsonl"), losses("again.jsonl"), losses("before.jsonl")
first = int(sys.argv[1]) + 1
assert all(whole[step] == again[step] for step in range(first, 301)), "not bit for bit"
assert all(abs(whole[step] / before[step] - 1) < 1e-4 for step in range(first, 301)), "another mathematics"
PY

# ---------------------------------------------------------------- hosts

hosts=(--any-placement --elastic 2:4)
rm -r checkpoints log.jsonl
printf 'localhost:2\n' >hosts
elastic 3000 "${hosts[@]}" --hostfile hosts  # long enough that moving pays
await_steps 5
grep -q "starts with 2 ranks" stderr || fail "not on the two slots of a host: $(cat stderr)"
printf 'localhost:2\n127.0.0.1:2\n' >hosts.new && mv hosts.new hosts
await_end 0 "a host joins"
grep -q "elastic: 127.0.0.1 has joined" stderr || fail "nobody has joined: $(cat stderr)"
grep -Eq "goes on from step [0-9]+ or later with 4 ranks: the run's own plan" stderr || fail "does not grow: $(cat stderr)"

rm -r checkpoints log.jsonl
retry=1000 elastic 300 "${hosts[@]}" --hosts "$two_hosts" --spares "$(hostname):2"
await_steps 8
kill -9 "$(one_rank)"
await_end 0 "a spare"
grep -Eq "goes on from step [0-9]+ or later with 4 ranks: the run's own plan" stderr || fail "no spare is used: $(cat stderr)"
expect 0 "suspect" "$meshplan" status

# ---------------------------------------------------------------- what ends it

rm -r checkpoints log.jsonl
most=1 elastic 400 --any-placement --elastic 4 --hosts "$two_hosts"
await_steps 8
kill -9 "$(one_rank)"
await_end 1 "too few are left"
grep -q "the run ends: 2 of at least 4 ranks have room" stderr || fail "too few are left: $(cat stderr)"
expect 0 "^checkpoints: failed$" "$meshplan" status

rm -r checkpoints log.jsonl
elastic 400 --elastic --failures-per-hour 1
for _ in 1 2; do
  await_steps $(($(steps_done) + 3))
  kill -9 "$(one_rank)"
done
await_end 1 "too many failures"
grep -q "the run ends: 2 failures within an hour" stderr || fail "too many failures: $(cat stderr)"

rm -r checkpoints log.jsonl
elastic 4000 --elastic
await_steps 8
pkill -TERM -P "$job" -f "meshplan run"
await_end 130 "a signal"
grep -q "interrupted by SIGTERM after step" stderr || fail "a signal: $(cat stderr)"
expect 0 "^checkpoints: interrupted$" "$meshplan" status

# --- a damaged newest checkpoint: the one before is used, and it is said
newest=$(ls -d checkpoints/step-* | sort -t- -k2 -n | tail -1)
python3 - "$newest/rank-00000.safetensors" <<'PY'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(-100, 2)
    byte = file.read(1)
    file.seek(-100, 2)
    file.write(bytes([byte[0] ^ 64]))
PY
elastic "$((${newest##*-} + 20))" --elastic --resume latest --change decay_steps
await_end 0 "a damaged checkpoint"
grep -q "$newest is damaged and was renamed to $newest.damaged" stderr || fail "a damaged checkpoint: $(cat stderr)"

# ---------------------------------------------------------------- by hand, and under other launchers

rm -r checkpoints
expect 0 "" "$meshplan" run dp4.json --data text.txt --steps 4 --checkpoint-every 2
expect 0 "3 ranks instead of 4: dp4.* -> .*; written to checkpoints/plan-3-ranks.json" \
  "$meshplan" run dp4.json --data text.txt --steps 8 --resume latest --gpus 3 --change decay_steps
expect 0 "continues .*/step-8" "$mpiexec" -n 2 "$meshplan" run "$work/dp4.json" --data "$work/text.txt" --steps 10 \
  --resume latest-if-any --elastic --change decay_steps
expect 2 "needs 4 ranks, but the job has 2: start as many, or add --elastic" \
  "$mpiexec" -n 2 "$meshplan" run "$work/dp4.json" --data "$work/text.txt" --steps 2 --checkpoint-dir "$work/none"
expect 0 "set +--gpus: dp4.* -> " "$meshplan" simulate dp4.json --gpus 3 --out dp3.json
expect 0 "3 ranks" "$meshplan" run dp3.json --data text.txt --steps 2 --checkpoint-dir x3
expect 2 "or uneven_batch" "$meshplan" simulate dp4.json --set parallel.dp=5
expect 2 "the plan has 3 ranks \(dp3\), but its cluster has 4; --gpus 3 plans for as many" \
  "$meshplan" simulate dp4.json --set parallel.dp=3

expect 2 "'x' is no number of ranks; write LEAST:MOST" "$meshplan" run dp4.json --elastic x
expect 2 "at least 5 and at most 3 ranks; nearest: 3:3" "$meshplan" run dp4.json --elastic 5:3
expect 2 "a run has at least 1 rank" "$meshplan" run dp4.json --elastic 0:4
expect 2 "^meshplan: --spares: is for --elastic; add it, or leave --spares out" "$meshplan" run dp4.json --spares d:4
expect 2 "^meshplan: --replace-slow-ranks: is for --elastic" "$meshplan" run dp4.json --replace-slow-ranks
for option in --warn-slow-rank --time-every; do
  expect 2 "^meshplan: $option 0: finds no slow rank for --replace-slow-ranks" \
    "$meshplan" run dp4.json --elastic --replace-slow-ranks $option 0
done
expect 2 "no elastic run has saved to nowhere" "$meshplan" status nowhere
printf '{' >checkpoints/job.json
expect 2 "checkpoints/job.json:1:2: not valid JSON" "$meshplan" status
finish
