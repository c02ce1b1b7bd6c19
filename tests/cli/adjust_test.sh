#!/usr/bin/env bash
# meshplan adjust, of the command given as $1, with the sources in $2: anchors out of each format of
# logs, files that it writes, commands that take them, and what is said of wrong input.
set -u
meshplan=$1
sources=$2
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# expect CODE PATTERN ARGUMENTS...: of meshplan; a fixed string in its output
expect() { check_output -F "$1" "$2" "$meshplan" "${@:3}"; }
refused() { expect 2 "$1" "${@:2}"; }

model=(--model llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096 --precision bf16)
parallel=(--tp 2 --sp --pp 2 --dp 2 --zero 1)
core=(--software megatron-core)
"$meshplan" simulate "${model[@]}" "${parallel[@]}" "${core[@]}" --out plan.json >/dev/null || fail "no plan.json"

# Logs in the shape of each stack's lines: 64 * 4096 tokens a step over 8 ranks.
python3 - <<'PYTHON' || fail "no logs"
batch, tokens, ranks = 64, 64 * 4096, 8
seconds = [9.0, 3.4] + 8 * [3.0]
def write(name, line):
    with open(name, "w") as log:
        log.write("starting\n")
        for step, time in enumerate(seconds, 1):
            log.write(line(step, time) + "\n")
write("megatron.log", lambda i, s: f" [2026-01-01 00:00:00] iteration {i:8d}/ 100 | consumed samples: {i * batch:12d} | elapsed time"
      f" per iteration (ms): {1000 * s:.1f} | global batch size: {batch:5d} | lm loss: 9.0E+00 |")
write("torchtitan.log", lambda i, s: f"[rank0]:[titan] 2026-01-01 00:00:00,000 - root - INFO - step: {i:2d}  loss:  7.6  grad_norm: 2.0"
      f"  memory: 60.00GiB(75.0%)  tps: {tokens / ranks / s:,.0f}  tflops: 400.00  mfu: 40.0%")
write("nanotron.log", lambda i, s: f"01/01/2026 00:00:00 [INFO|DP=0|PP=1|TP=0]: iteration: {i} / 100 | consumed_tokens: 1M |"
      f" elapsed_time_per_iteration_ms: {s:.2f}K | tokens_per_sec: 100K | global_batch_size: {batch} | lm_loss: 9.0 |")
write("deepspeed.log", lambda i, s: f"[2026-01-01 00:00:00,000] [INFO] [timer.py:260:stop] epoch=0/micro_step={8 * i}/global_step={i}, "
      f"RunningAvgSamplesPerSec={batch / s}, CurrSamplesPerSec={batch / s}, MemAllocated=6.01GB, MaxMemAllocated=9GB")
write("pipeline.log", lambda i, s: f"steps: {i} loss: 9.0000 iter time (s): {s:.3f} samples/sec: {batch / s:.3f}")
PYTHON
for stack in megatron torchtitan nanotron deepspeed pipeline; do
  expect 0 "$stack.log: median of 8 steps after 2 of warm-up" adjust plan.json "$stack.log" "${core[@]}" --out "$stack.json"
  grep -Eq '"measured_s": (3\.0|2\.99)' "$stack.json" || fail "$stack: not 3 s a step: $(grep measured_s "$stack.json")"
done

# A step time alone; the run itself is then as measured, and others are told apart from it.
expect 0 "takes longer than predicted" adjust plan.json --step-time 3.5 "${core[@]}" --out adjusted.json
expect 0 "without: " simulate plan.json "${core[@]}" --adjusted adjusted.json
expect 0 "adjusted by one measured run, --step-time 3.5" simulate plan.json "${core[@]}" --adjusted adjusted.json
expect 0 '"without_anchors_s"' simulate plan.json "${core[@]}" --adjusted adjusted.json --json
expect 0 '"factors"' adjust plan.json --step-time 3.5 "${core[@]}" --json
expect 0 "adjusted by one measured run" plan "${model[@]}" --gpus 8 "${core[@]}" --adjusted adjusted.json --top 1
"$meshplan" plan "${model[@]}" --gpus 8 "${core[@]}" --adjusted adjusted.json --out best.json >/dev/null ||
  fail "no best.json"
"$meshplan" simulate best.json "${core[@]}" --adjusted adjusted.json --json >best_simulated.json
python3 - <<'PYTHON' || fail "plan and simulate differ, or the anchor is not met"
import json, subprocess
planned = json.load(open("best.json"))["prediction"]["step_time_s"]
simulated = json.load(open("best_simulated.json"))["step_time_s"]
assert abs(planned / simulated - 1) < 1e-9, (planned, simulated)
anchor = json.load(open("adjusted.json"))["anchors"][0]
assert abs(anchor["adjusted_s"] / 3.5 - 1) < 0.02, anchor
PYTHON

# More runs beside the first; a launch script as the configuration.
"$meshplan" simulate "${model[@]}" --tp 2 --sp --pp 1 --dp 4 --zero 1 "${core[@]}" --out other.json >/dev/null
expect 0 "3.30 s" adjust other.json --step-time 3.3 "${core[@]}" --beside adjusted.json --out both.json
expect 0 "2 measured runs, the first --step-time 3.5" simulate plan.json "${core[@]}" --adjusted both.json
script=run/run.sh
"$meshplan" export plan.json --to megatron --out run >/dev/null || fail "no run.sh"
expect 0 "software  megatron-core" adjust "$script" --cluster dgx-h100 --step-time 3.5 --out script_adjusted.json
expect 0 "adjusted by one measured run" simulate "$script" --cluster dgx-h100 --adjusted script_adjusted.json

# A table of runs.
table=$sources/tests/fuzz/corpus/published-table/vpp-3.csv
expect 0 "what they say" adjust --runs "$table" --out table.json
expect 0 "rows adjusted by" validate --table "$table" --adjusted table.json
expect 0 "no row has as many others" validate --table "$table" --anchors 2

# What is refused.
refused "adjust needs a measured run" adjust plan.json "${core[@]}"
refused "adjust needs a measured run" adjust plan.json megatron.log --step-time 2 "${core[@]}"
refused "leave out the plan" adjust plan.json --runs "$table"
refused "--step-time -1: expected seconds, above 0" adjust plan.json --step-time -1 "${core[@]}"
refused "plan.json: plans of software 'meshplan' are priced operation by operation" adjust plan.json --software meshplan --step-time 2
refused "priced operation by operation" simulate plan.json --software meshplan --adjusted adjusted.json
refused "cluster: its anchors ran 'dgx-h100', not 'dgx-a100'" simulate plan.json --cluster dgx-a100 "${core[@]}" --adjusted adjusted.json
refused "software: its anchors ran 'megatron-core', not 'megatron-core@25.09'" simulate plan.json --software megatron-core@25.09 --adjusted adjusted.json
refused "model: its anchors ran" plan --model llama3-70b --cluster dgx-h100 --gpus 64 --global-batch 64 "${core[@]}" --adjusted adjusted.json
refused "other.json: software is 'megatron-core@25.09', but that of adjusted.json is 'megatron-core'" \
  adjust other.json --step-time 2 --software megatron-core@25.09 --beside adjusted.json
refused "adjusted.json" simulate plan.json "${core[@]}" --adjusted nowhere_adjusted.json
echo '{"schema_version": 1}' >broken.json
refused "broken.json: " simulate plan.json "${core[@]}" --adjusted broken.json
printf 'words\nonly\n' >words.log
refused "words.log:1: none of 2 lines says the time of a step" adjust plan.json words.log "${core[@]}"
sed 's/global batch size:    64/global batch size:    32/' megatron.log >batch.log
refused "batch.log:2" adjust plan.json batch.log "${core[@]}"
sed 's/"mean": /"mean": 5/' adjusted.json >edited.json
refused "but the anchors say" simulate plan.json "${core[@]}" --adjusted edited.json
refused "--anchors" validate --table "$table" --anchors 3
refused "leave out --anchors" validate --table "$table" --anchors 1 --adjusted table.json
finish
