#!/usr/bin/env bash
# A training job as its user sees it: exit codes, messages, files, and how it ends when a rank fails.
# Usage: run_test.sh PATH_OF_meshplan [MPIEXEC]
set -u
meshplan=$1
mpiexec=${2:-mpiexec}
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
source "$tests/tiny_training.sh"
source "$tests/ending/job_processes.sh"

expect_no_rank() {
  wait_until_gone
  [ -z "$(ranks)" ] || fail "$1: left over: $(ps -o pid=,stat=,args= -p "$(ranks | paste -sd,)")"
}

# --- plans of a tiny model
make_plan tp2.json --tp 2
make_plan pp2.json --pp 2 --trace predicted.json

# --- a run that ends well
expect 0 "held-out loss" "$meshplan" run tp2.json --data text.txt --steps 4 --eval-every 2 --device cpu
grep -q "step time" stdout || fail "no step time: $(cat stdout)"
expect 0 '"losses"' "$meshplan" run pp2.json --data text.txt --steps 30 --json --trace measured.json
python3 - <<'PY' || fail "the loss does not fall by a tenth in 30 steps"
import json, sys
run = json.load(open("stdout"))
losses, norms = run["losses"], run["gradient_norms"]
sys.exit(not (len(losses) == 30 and losses[-1] < 0.9 * losses[0] and len(norms) == 30 and min(norms) > 0))
PY
cp stdout traced.json
expect 0 "step time, ms" "$meshplan" compare predicted.json measured.json
grep -q '"reference_s": [0-9.e-]*[1-9]' measured.json || fail "the trace says how fast the machine was"
expect 0 '"step_time_error"' "$meshplan" compare predicted.json measured.json --json
"$meshplan" run pp2.json --data text.txt --steps 30 --json >stdout 2>stderr || fail "an untraced run"
python3 - <<'PY' || fail "tracing changes the losses"
import json, sys
sys.exit(json.load(open("stdout"))["losses"] != json.load(open("traced.json"))["losses"])
PY
sed -i '/other processes used/d' stderr  # true of a machine that is not quiet
[ -s stderr ] && fail "a run that ends well writes to stderr: $(cat stderr)"

# --- settings of the optimizer beside those of the plan
expect 0 "lr 0.01 after 2 steps of warm-up, constant" "$meshplan" run tp2.json --data text.txt --steps 4 \
  --lr 0.01 --warmup-steps 2 --lr-schedule constant --clip-norm 0 --log settings.jsonl --trace settings.json \
  --checkpoint-dir settings --checkpoint-every 4
python3 - <<'PY' || fail "a run does not train with the settings that it was given"
import json, sys
lines = [json.loads(line) for line in open("settings.jsonl")]
optimizer = json.load(open("settings.json"))["plan"]["workload"]["optimizer"]
rates = [line["learning_rate"] for line in lines if line["kind"] == "step"]
sys.exit(not (lines[0]["optimizer"] == optimizer and optimizer["learning_rate"] == 0.01 and
              optimizer["clip_norm"] == 0 and rates == [0.005, 0.01, 0.01, 0.01]))
PY
expect 2 "learning_rate is 0.01 so far, but 0.0003 now; schedule is constant so far, but cosine now; warmup_steps is 2" \
  "$meshplan" run tp2.json --data text.txt --steps 5 --resume settings
expect 2 "tp2.json: decay_steps \(3\) must be 0 or above warmup_steps \(5\)" "$meshplan" run tp2.json \
  --data text.txt --steps 4 --warmup-steps 5 --decay-steps 3
expect 2 "nearest: 0.99999994" "$meshplan" run tp2.json --data text.txt --beta1 1

# --- a classifier of sequences: its class is how many of a sequence's tokens are odd, none or all
cat >encoder.json <<'JSON'
{"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
 "intermediate_size": 48, "vocab_size": 256, "max_position_embeddings": 32, "num_labels": 2,
 "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
JSON
python3 - <<'PY'
import random, struct
random.seed(1)
with open("classes.u16", "wb") as file:
    for i in range(400):
        tokens = [2 * random.randrange(32) + i % 2 for _ in range(32)]
        file.write(struct.pack("<33H", *tokens, i % 2))
PY
expect 0 "" "$meshplan" plan --model encoder.json --cluster cpu-host --gpus 2 --tp 2 \
  --global-batch 16 --seq-len 32 --out encoder-plan.json
sed -i 's/"learning_rate": [^,]*/"learning_rate": 0.01/' encoder-plan.json
expect 0 "held-out loss" "$meshplan" run encoder-plan.json --data classes.u16 --steps 4 \
  --eval-every 2
expect 0 '"losses"' "$meshplan" run encoder-plan.json --data classes.u16 --steps 30 --json
python3 - <<'PY' || fail "a classifier does not learn what its data says: $(cat stdout)"
import json, sys
losses = json.load(open("stdout"))["losses"]
sys.exit(not (0.6 < losses[0] < 0.8 and losses[-1] < 0.5 * losses[0]))
PY
expect 2 "text.txt: 8800 tokens are no whole number of sequences of seq_len\(32\) tokens and their class" \
  "$meshplan" run encoder-plan.json --data text.txt --steps 2
python3 -c 'open("late.u16", "wb").write(open("classes.u16", "rb").read()[:-2] + b"\x07\x00")'
expect 2 "late.u16: 7 at position 13199 is no class" "$meshplan" run encoder-plan.json \
  --data late.u16 --steps 2

# --- plans that the search finds for experts and ZeRO: planned, run, compared
loop() {  # loop NAME PATTERN ARGUMENTS...: leaves the log of the run in NAME.jsonl
  local name=$1 pattern=$2
  shift 2
  expect 0 "$pattern" "$meshplan" plan --cluster cpu-host --global-batch 4 --seq-len 32 "$@" \
    --out "$name.json"
  expect 0 "step time" "$meshplan" simulate "$name.json" --trace "$name-predicted.json"
  expect 0 "step time" "$meshplan" run "$name.json" --data text.txt --steps "${steps:-2}" \
    --trace "$name-measured.json" --log "$name.jsonl"
  expect 0 "step time, ms" "$meshplan" compare "$name-predicted.json" "$name-measured.json"
}
steps=4 loop experts "dp2 ep2 .*zero1" --model tiny-moe --gpus 2 --dp 2 --ep 2 --zero 1
# Buffers for an even router are too small for most steps: the same losses, and what they took.
python3 - <<'PY'
import json
plan = json.load(open("experts.json"))
plan["expert_imbalance"] = plan["expected_expert_imbalance"] = 1
json.dump(plan, open("tight.json", "w"))
PY
expect 0 "expert rows beyond the plan: [0-9.]+ layer visits, [0-9.]+ MiB more, largest imbalance 1" \
  "$meshplan" run tight.json --data text.txt --steps 4 --log tight.jsonl
python3 - <<'PY' || fail "buffers that are too small change a run: $(head -c 2000 tight.jsonl)"
import json, sys
def steps(path):
    lines = [json.loads(line) for line in open(path)]
    return [line for line in lines if line["kind"] == "step"]
wide, tight = steps("experts.jsonl"), steps("tight.jsonl")
beyond = [step["experts"]["beyond_plan"] for step in tight]
sys.exit(not ([step["loss"] for step in tight] == [step["loss"] for step in wide]
              and any(step["layer_visits"] > 0 for step in beyond)
              and all((step["layer_visits"] > 0) == (step["bytes"] > 0) ==
                      (step["largest_imbalance"] > 1) for step in beyond)))
PY
loop spread "dp4 ep2 .*zero3" --model tiny-moe --gpus 4 --dp 4 --ep 2 --zero 3
loop zero "dp2 .*zero2" --model model.json --gpus 2 --dp 2 --zero 2

# --- the log
expect 0 "MFU is of .* data sheet" "$meshplan" run pp2.json --data text.txt --steps 6 \
  --log log.jsonl --time-every 3 --eval-every 3
python3 - log.jsonl <<'PY' || fail "the log of a run: $(head -c 2000 log.jsonl)"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
steps = [line for line in lines if line["kind"] == "step"]
run = lines[0]
sys.exit(not ([line["kind"] for line in lines] == ["run"] + 6 * ["step"] + ["summary"]
              and [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6]
              and [step["timing"] is not None for step in steps] == 2 * [True, False, False]
              and [step["evaluation_loss"] is not None for step in steps] == 2 * [False, False, True]
              and all(abs(step["mfu"] * step["step_time_s"] * run["peak_flop_per_s"]
                          / run["model_flop_per_step"] - 1) < 1e-9 for step in steps)
              and all(step["resident_bytes"] > 1e6 for step in steps)))
PY
expect 0 "step time" "$meshplan" run pp2.json --data text.txt --steps 4 --log log.jsonl \
  --checkpoint-dir logged
[ "$(wc -l <log.jsonl)" -eq 6 ] || fail "a new run does not start a new log"
expect 0 "step time" "$meshplan" run pp2.json --data text.txt --steps 5 --decay-steps 4 \
  --log log.jsonl --checkpoint-dir logged --resume latest
[ "$(wc -l <log.jsonl)" -eq 9 ] || fail "a resumed run does not go on with its log"
expect 1 "missing/log.jsonl: cannot be written: there is no folder missing" "$meshplan" run \
  tp2.json --data text.txt --steps 2 --log missing/log.jsonl
expect 2 "--time-every -1: must be at least 0" "$meshplan" run tp2.json --time-every -1
expect 2 "--warn-slow-rank -2: must be at least 0" "$meshplan" run tp2.json --warn-slow-rank -2

expect 0 "step time" "$meshplan" run tp2.json --data text.txt --steps 6 --verify 2
expect 2 "--verify -1: must be at least 0" "$meshplan" run tp2.json --verify -1

# --- fp16: the scale starts too high, so the first steps are skipped; a resumed run goes on alike
make_plan half.json --pp 2 --dp 2 --precision fp16
half() {  # half ARGUMENTS...: losses of a run that ends well
  "$meshplan" run half.json --data text.txt --json --loss-scale 1e8 --loss-scale-interval 5 \
    --verify 4 "$@" 2>stderr | python3 -c 'import json, sys; print(*json.load(sys.stdin)["losses"])' ||
    fail "fp16 $*: $(cat stderr)"
}
whole=$(half --steps 30 --checkpoint-dir half --checkpoint-every 14 --keep 0 --log half.jsonl)
rm -r half/step-28 half/step-30
rest=$(half --steps 30 --checkpoint-dir half --resume latest)
[ "$(echo "$whole" | cut -d ' ' -f 15-)" = "$rest" ] || fail "fp16 resumed: $rest after $whole"
python3 - half.jsonl <<'PY' || fail "loss scaling in the log: $(tail -n 3 half.jsonl)"
import json, sys
steps = [line for line in map(json.loads, open(sys.argv[1])) if line["kind"] == "step"]
scales = [step["loss_scale"] for step in steps]
skipped = [step["gradient_norm"] is None for step in steps]
halves = all(b == a / 2 for a, b, skip in zip(scales, scales[1:], skipped) if skip)
falls = steps[-1]["loss"] < 0.95 * steps[0]["loss"]
sys.exit(not (scales[0] == 1e8 and skipped[0] and halves and not all(skipped) and falls
              and any(b == 2 * a for a, b in zip(scales, scales[1:]))))
PY
expect 2 "--loss-scale 0: must be from 1 to 2.96" "$meshplan" run half.json --loss-scale 0
expect 2 "--loss-scale-backoff 1: must be between 0 and 1" "$meshplan" run half.json \
  --loss-scale-backoff 1

# --- hosts
expect 0 "step time" "$meshplan" run tp2.json --data text.txt --steps 3 \
  --hosts localhost:1,127.0.0.1:1
printf '# two names of one machine\nlocalhost:1\n127.0.0.1 slots=1\n' >hosts
expect 0 "step time" "$meshplan" run tp2.json --data text.txt --steps 3 --hostfile hosts
expect 2 "hosts localhost:1 have 1 slot, but the job has 2 ranks: give them more, for example localhost:2" \
  "$meshplan" run tp2.json --data text.txt --steps 3 --hosts localhost:1
expect 0 "step time" "$meshplan" run tp2.json --data text.txt --steps 3 --hosts localhost
expect 2 "not both" "$meshplan" run tp2.json --data text.txt --hostfile hosts --hosts localhost:2
expect 2 "missing-hosts: no such file" "$meshplan" run tp2.json --data text.txt \
  --hostfile missing-hosts

expect "1|2" "host 'nosuchhost.invalid' is not known to this machine" "$meshplan" run tp2.json \
  --data text.txt --hosts nosuchhost.invalid:2
# A host that does not answer: ssh gives up, but mpiexec does not notice.
mkdir fake
printf '#!/bin/sh\n[ "$1" = -G ] || { sleep 1; exit 255; }\n' >fake/ssh
chmod +x fake/ssh
expect 1 "job ends: host '192.0.2.1' could not be reached or was lost: its ssh" \
  env PATH="$PWD/fake:$PATH" "$meshplan" run tp2.json --data text.txt --hosts localhost:1,192.0.2.1:1
expect_no_rank "an unreachable host"

# --- an outer launcher
expect 0 "step time" "$mpiexec" -n 2 "$meshplan" run "$work/tp2.json" --data "$work/text.txt" \
  --steps 3
expect 2 "needs 2 ranks, but the job has 3" "$mpiexec" -n 3 "$meshplan" run "$work/tp2.json" \
  --data "$work/text.txt" --steps 3 --any-placement

# --- bad input
expect 2 "which plan\?" "$meshplan" run
expect 2 "did you mean 'cuda'" "$meshplan" run tp2.json --data text.txt --steps 3 --device cuds
if [ -e /dev/nvidiactl ]; then
  echo "not tested: the words for a machine without a GPU, for this one has a GPU"
else
  expect 2 "no GPU: " "$meshplan" run tp2.json --data text.txt --steps 3 --device cuda
fi
expect 2 "book.txt: no such file" "$meshplan" run tp2.json --data book.txt
: >empty.txt
expect 2 "empty.txt: the data file is empty" "$meshplan" run tp2.json --data empty.txt
head -c 100 text.txt >short.txt
expect 2 "short.txt: 100 tokens .*less than one global batch of 4; use at least 129 tokens" \
  "$meshplan" run tp2.json --data short.txt
printf 'abc' >odd.u16
expect 2 "odd.u16: 3 bytes are no whole number of 2-byte tokens" "$meshplan" run tp2.json \
  --data odd.u16
head -c 4000 text.txt >letters.u16
expect 2 "letters.u16: token [0-9]+ at position [0-9]+ is outside the vocabulary of 256" \
  "$meshplan" run tp2.json --data letters.u16 --steps 2
expect 2 "tp3.json: no such file; near it: " "$meshplan" run tp3.json
echo '{"schema_version": 1,' >corrupt.json
expect 2 "corrupt.json:2:1: not valid JSON" "$meshplan" run corrupt.json
sed 's/"micro_batch_size"/"micro_batchsize"/' tp2.json >typo.json
expect 2 "micro_batchsize: unknown key; did you mean 'micro_batch_size'" "$meshplan" run typo.json
expect 2 "--steps 0: must be at least 1" "$meshplan" run tp2.json --data text.txt --steps 0
expect 2 "--threads-per-rank 0: must be at least 1" "$meshplan" run tp2.json --data text.txt \
  --threads-per-rank 0
expect 2 "--hang-timeout 0: must be" "$meshplan" run tp2.json --data text.txt --hang-timeout 0
expect 1 "missing/trace.json: cannot be written: there is no folder missing" "$meshplan" run \
  tp2.json --data text.txt --steps 2 --trace missing/trace.json
grep -q "ms" stdout && fail "steps are run whose trace cannot be written"
expect 1 "c.json: cannot be written: text.txt is not a folder" "$meshplan" run tp2.json \
  --data text.txt --steps 2 --chrome text.txt/c.json
expect 1 "missing/c.json: cannot be written" "$meshplan" calibrate --out missing/c.json
grep -q measuring stderr && fail "ranks are started whose result cannot be written"
expect 1 "missing/t.json: cannot be written" "$mpiexec" -n 2 "$meshplan" run "$work/tp2.json" \
  --data "$work/text.txt" --steps 2 --trace missing/t.json

# --- numbers that are no numbers
sed 's/"learning_rate": [0-9.e-]*/"learning_rate": 1e9/' pp2.json >absurd.json
expect 1 "rank 0 on .*: step [0-9]+: the loss is .*inf|nan.* gradient .* not finite.*rank [01]" \
  "$meshplan" run absurd.json --data text.txt --steps 20 --trace absurd_trace.json
[ "$(grep -c 'not finite' stderr)" -eq 1 ] || fail "not one line: $(cat stderr)"
[ -e absurd_trace.json ] && fail "a trace of a broken run is written"
expect 0 "step time" "$meshplan" run tp2.json --data text.txt --steps 2 --trace tp2_trace.json --no-verify-start
expect 2 "different plans" "$meshplan" compare predicted.json tp2_trace.json
expect_no_rank "before any signal"

# --- a rank dies, hangs; the user gives up
# start_job ARGUMENTS...: runs 1,000,000 steps in the background, on $data, waits until two ranks
# train. Sets `job`.
start_job() {
  : >stdout  # else the line of the job before may be taken for this one's
  "$meshplan" run pp2.json --data "$work/${data:-text.txt}" --steps 1000000 "$@" >stdout 2>stderr &
  job=$!
  for _ in $(seq 600); do
    grep -q '^ *1 ' stdout && return
    sleep 0.1
  done
  fail "the job does not start: $(head -c 2000 stdout) $(cat stderr)"
}

# expect_end NAME CODE PATTERN: the job ends, with this code and line. --hang-timeout is 60 s but where
# a rank hangs: nothing else ends a job by waiting for it.
expect_end() {
  for _ in $(seq 500); do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 "$job" 2>/dev/null; then
    fail "$1: still running after 50 s"
    kill -TERM "$job"
  fi
  wait "$job"
  local code=$?
  [ "$code" -eq "$2" ] || fail "$1: exit code $code instead of $2: $(cat stderr)"
  [ -z "$3" ] || grep -qE -- "$3" stderr || fail "$1: no '$3' in: $(cat stderr)"
  expect_no_rank "$1"
  echo "$1: exit code $code"
}

# Only the reduction of gradients and the optimizer belong to no micro-batch.
where='rank [01] on .*: step [0-9]+, stage [01], (micro-batch [0-3], (layer [01], |embedding, |head, )?)?[a-z_.]+'
start_job
kill -KILL "$(rank_processes | tail -1)"
expect_end "kill -9" 1 "died: $where"
"$meshplan" run pp2.json --data "$work/text.txt" --steps 1000000 >stdout 2>stderr &
job=$!
until [ -n "$(rank_processes)" ]; do sleep 0.01; done
kill -KILL "$(rank_processes | tail -1)"
expect_end "kill -9 of a rank that starts" 1 "job ends: died.* rank"
start_job --hang-timeout 2
kill -STOP "$(rank_processes | tail -1)"
expect_end "SIGSTOP" 1 "hangs: $where; stopped by a signal"
start_job
kill -INT "$job"
expect_end "interrupt" 130 ""
grep -E "died|job ends" stderr && fail "an interrupt is taken for a death"
start_job
kill -TERM "$job"
expect_end "SIGTERM without checkpoints" 130 ""
grep -E "died|job ends" stderr && fail "SIGTERM is taken for a death"

# Before main() runs, nothing can hear a signal.
hears_sigterm() {
  local mask
  for mask in $(sed -nE 's/^Sig(Blk|Cgt):[[:space:]]*//p' "/proc/$1/status"); do
    [ $((16#$mask >> 14 & 1)) -eq 1 ] && [ "$(cat "/proc/$1/comm")" = meshplan ] && return 0
  done
  return 1
}
for delay in 0.02 0.1 0.3 0.6; do  # while it starts there is nothing to save
  "$meshplan" run pp2.json --data "$work/text.txt" --steps 1000000 --checkpoint-dir "early$delay" \
    >stdout 2>stderr &
  job=$!
  for _ in {1..6000}; do hears_sigterm "$job" && break; sleep 0.01; done
  sleep "$delay"
  kill -TERM "$job"
  expect_end "SIGTERM $delay s into the start" 130 ""
  grep -E "died|job ends" stderr && fail "SIGTERM into the start is taken for a death"
done

# --- the launcher is killed: nobody trains on and saves
start_job --checkpoint-dir orphans --checkpoint-every 1
kill -KILL "$job"
expect_end "kill -9 of the launcher" 137 ""
saved=$(ls orphans)
sleep 1
[ "$(ls orphans)" = "$saved" ] || fail "checkpoints are written after the launcher's death"

# --- the data file is cut
for _ in $(seq 30); do cat text.txt; done >cut.txt
data=cut.txt start_job
truncate -s 100 cut.txt
expect_end "data file cut" 1 "rank [01] on .*cut.txt: the data file was cut while it is in use"

# --- temporary folders
scratch() { find "$work/tmp" -mindepth 1; }
mkdir tmp
TMPDIR=$work/tmp "$meshplan" trial "$work/pp2.json" --data "$work/text.txt" --steps 1000000 \
  >stdout 2>stderr &
job=$!
for _ in $(seq 600); do
  [ -n "$(ranks | sed 1d)" ] && break
  sleep 0.1
done
kill -TERM "$job"
expect_end "SIGTERM to trial" 130 ""
[ -z "$(scratch)" ] || fail "trial leaves $(scratch)"

finish
