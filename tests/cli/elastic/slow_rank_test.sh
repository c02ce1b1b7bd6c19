#!/usr/bin/env bash
# A rank of a running job is slowed down: it gets less work, or the run goes on without it, and the losses go on.
# Usage: slow_rank_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"
# Two stages of two ranks, each of which has a peer to be compared with; eight layers to divide.
python3 - <<'PY'
import json
model = json.load(open("model.json"))
model["num_hidden_layers"] = 8
json.dump(model, open("deep.json", "w"))
PY
"$meshplan" simulate --model deep.json --cluster cpu-host --global-batch 16 --seq-len 64 --pp 2 --dp 2 --out plan.json >/dev/null ||
  exit 1

# slow_down RANK TIMES: stops the rank's process for all but a part of every 40 ms, job after job, until the
# run has said that the rank is slow, and that job has ended. Much slower than what other users of the machine
# make of a rank.
slow_down() {
  python3 - "$work" "$1" "$2" <<'PY'
import os, signal, sys, time

folder, rank, times = sys.argv[1], sys.argv[2], float(sys.argv[3])

def name_of(pid):
    return open(f"/proc/{pid}/comm").read().strip()

def process_of_rank():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            arguments = open(f"/proc/{pid}/cmdline").read()
            environment = open(f"/proc/{pid}/environ").read().split("\0")
            parent = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()[1]
            if f"PMI_RANK={rank}" in environment and folder in arguments and name_of(pid) == "meshplan" and \
               name_of(parent) == "hydra_pmi_proxy":
                return int(pid)
        except OSError:
            continue
    return None

def slow_down(pid):
    period = 0.04
    try:
        while True:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(period * (1 - 1 / times))
            os.kill(pid, signal.SIGCONT)
            time.sleep(period / times)
    except ProcessLookupError:
        pass

def is_said():
    return f"elastic: rank {rank} on" in open(f"{folder}/stderr").read()

deadline = time.time() + 240
while not is_said() and not os.path.exists(f"{folder}/ended") and time.time() < deadline:
    if pid := process_of_rank():
        slow_down(pid)
    time.sleep(0.1)
PY
}

steps_done() { cat log.jsonl 2>/dev/null | grep -c '"kind":"step"'; }

steps=300
run_slowed() {  # run_slowed ARGUMENTS...: rank 3 computes forty times as long from step 20 on; sets `code`
  rm -rf checkpoints log.jsonl ended
  timeout -k 1 240 "$meshplan" run "$work/plan.json" --data "$work/text.txt" --steps $steps --checkpoint-every 100 \
    --log "$work/log.jsonl" --replace-slow-ranks --warn-slow-rank 5 --retry-after 1000 "$@" >stdout 2>stderr &
  local job=$!
  for _ in $(seq 600); do
    [ "$(steps_done)" -ge 20 ] && break
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  slow_down 3 40 &
  local slower=$!
  wait "$job"
  code=$?
  touch ended
  wait "$slower"
  cp stderr said
  grep "elastic:" said
  [ "$code" -eq 0 ] || fail "$*: exit code $code: $(cat said)"
  [ -z "$(ranks)" ] || fail "$*: left over: $(ranks)"
}

# The losses of all jobs of the run are those of the undisturbed one: the same mathematics.
check_losses() {
  python3 - $steps <<'PY' || fail "$1: the losses are others, or steps are missing"
import json, sys
def losses(name):
    found = {}
    for line in open(name):
        step = json.loads(line)
        if step["kind"] == "step":
            found[step["step"]] = step["loss"]
    return found
slowed, undisturbed = losses("log.jsonl"), losses("undisturbed.jsonl")
assert set(slowed) == set(undisturbed) == set(range(1, int(sys.argv[1]) + 1))
worst = max(abs(slowed[step] / undisturbed[step] - 1) for step in slowed)
assert worst < 1e-4, worst
PY
}

timeout -k 1 240 "$meshplan" run plan.json --data text.txt --steps $steps --log undisturbed.jsonl >stdout 2>stderr ||
  fail "the undisturbed run: exit code $?: $(cat stderr)"
slow="elastic: rank 3 on this machine computes [0-9.]+ x as long as its peers, with [0-9.]+ s left"

# ---------------------------------------------------------------- no rank may be left out

run_slowed --elastic 4
grep -Eq "$slow: less work for it \(.*\) would save [0-9.]+ s; leaving it out has no plan \(3 of at least 4 ranks have room\)" said ||
  fail "what each way would save is not said: $(cat said)"
grep -Eq "$slow.*: gives it less work after this step" said || fail "the rank does not get less work: $(cat said)"
grep -Eq "goes on from step [0-9]+ or later with 4 ranks: .* -> .*layers" said || fail "no other division: $(cat said)"
check_losses "less work"
expect 0 "slot 3: [0-9.]+ x" "$meshplan" status
python3 - <<'PY' || fail "the slow rank's stage has no fewer layers"
import json
plan = json.load(open("checkpoints/job-plan.json"))
layers, pp = plan["layers_per_stage"], plan["parallel"]["pp"]
def stage_of(position):  # zb-v and dualpipe-v go back and forth
    place = position % pp
    back = "v" in plan["schedule"].split("-")[-1:] and position // pp % 2 == 1
    return pp - 1 - place if back else place
own = sum(count for position, count in enumerate(layers) if stage_of(position) == 3 // (4 // pp))
assert sum(layers) == 8 and own < 8 / pp, layers
slow = {one["rank"]: one["times"] for one in plan["cluster"]["slow_ranks"]}
assert slow[3] > 8, slow
PY

# ---------------------------------------------------------------- whichever is faster

run_slowed --elastic
grep -Eq "$slow: less work for it .*; leaving it out .*; a move takes about [0-9.]+ s: (gives it less work|leaves it out) after this step" said ||
  fail "the run does not move: $(cat said)"
check_losses "either way"
finish
