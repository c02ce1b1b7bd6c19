#!/usr/bin/env bash
# meshplan compare, of the command given as $1: what it takes beside a plan or a predicted trace, what
# it writes, and what it says of wrong files.
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# expect CODE PATTERN ARGUMENTS...: of meshplan; a fixed string in its output
expect() { check_output -F "$1" "$2" "$meshplan" "${@:3}"; }
refused() { expect 2 "$1" compare "${@:2}"; }

llama=(--model llama3-8b --cluster dgx-h100 --global-batch 16 --seq-len 4096)
"$meshplan" simulate "${llama[@]}" --tp 2 --sp --pp 2 --dp 2 --out plan.json --trace predicted.json.gz \
  --chrome chrome.json.gz --program program.json >/dev/null || fail "no plan.json"
"$meshplan" simulate "${llama[@]}" --tp 4 --sp --dp 2 --out other.json >/dev/null || fail "no other.json"
"$meshplan" simulate plan.json --trace predicted.json >/dev/null || fail "no predicted.json"
gzip -t predicted.json.gz && gzip -dc predicted.json.gz | cmp -s - predicted.json ||
  fail "the packed trace is not the unpacked one"

python3 - <<'PYTHON' || fail "no inputs"
import gzip, json
trace = json.load(open("predicted.json"))
trace["measured"] = True
trace["step_times_s"] = 5 * [1.1 * trace["step_times_s"][0]]
json.dump(trace, open("measured.json", "w"))
with gzip.open("measured.json.gz", "wt") as packed:
    json.dump(trace, packed)
batch = 16
with open("megatron.log", "w") as log:
    for step in range(1, 11):
        log.write(f" [2026-01-01 00:00:00] iteration {step:8d}/    1000 | consumed samples: {step * batch:12d} | elapsed time"
                  f" per iteration (ms): {900 + step:.1f} | global batch size: {batch:5d} | lm loss: 9.0E+00 |\n")
open("words.log", "w").write("nothing\nhere\n")

# A profile of rank 0: its products with their shapes, and one kernel that is no operation of ours.
events, time = [], 1e6
operations = json.load(open("program.json"))["instances"]
for number, operation in enumerate(operations):
    if not operation.get("signature", "").startswith("linear."):
        continue
    back = operation["phase"] in ("input_grad", "weight_grad")
    scopes = [("cpu_op", "autograd::engine::evaluate_function: MmBackward0" if back else "aten::linear", time, 9, {}),
              ("cpu_op", "aten::mm", time + 1, 7, {"Input Dims": [[int(operation["flops"] // 2), 1], [1, 1]]}),
              ("cuda_runtime", "cudaLaunchKernel", time + 2, 1, {"correlation": number})]
    for category, name, ts, dur, args in scopes:
        events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args})
    events.append({"ph": "X", "cat": "kernel", "name": "sm90_xmma_gemm_bf16", "pid": 0, "tid": 7, "ts": time + 3, "dur": 5,
                   "args": {"stream": 7, "correlation": number}})
    time += 10
events.append({"ph": "X", "cat": "kernel", "name": "somebody_elses_kernel", "pid": 0, "tid": 7, "ts": time, "dur": 500,
               "args": {"stream": 7}})
profile = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}, "traceEvents": events}
json.dump(profile, open("profile.json", "w"))
with gzip.open("profile.json.gz", "wt") as packed:
    json.dump(profile, packed)
profile["distributedInfo"]["world_size"] = 16
json.dump(profile, open("other_job.json", "w"))
PYTHON
head -c 5000 measured.json.gz >cut.json.gz
printf '\037\213garbage' >garbage.json.gz
head -c 20000 profile.json >cut_profile.json
: >empty.json

# Beside a trace, or a plan that is simulated first.
expect 0 "communication, ms" compare predicted.json measured.json
expect 0 "critical rank" compare predicted.json.gz measured.json.gz
expect 0 "median of 4 steps after 1 of warm-up" compare plan.json measured.json
expect 0 "80 % interval" compare plan.json --step-time 0.9
expect 0 "905.50" compare predicted.json --step-time 0.9055
expect 0 "906.50" compare plan.json megatron.log  # the median of 3 to 10
expect 0 "10 of 10 lines are steps of Megatron-LM" compare plan.json megatron.log
expect 0 "predicted ms" compare plan.json --step-time 1 --software megatron-core
expect 0 "somebody_elses_kernel" compare plan.json profile.json
expect 0 "by size" compare predicted.json profile.json.gz
expect 0 "somebody_elses_kernel" compare plan.json profile.json --software megatron-core
expect 0 "stage 1" compare plan.json measured.json --timeline
expect 0 "F forward" simulate plan.json --timeline
"$meshplan" simulate plan.json --timeline | grep -q $'\033' && fail "colours without a terminal"
"$meshplan" simulate plan.json --timeline | sed -n "/^predicted step/,\$p" >wide  # other tables are older
"$meshplan" compare plan.json profile.json --timeline >>wide
awk 'length($0) > 100 { exit 1 }' wide || fail "wider than 100 columns: $(awk 'length($0) > 100' wide | head -3)"

# One plan's step to another's.
expect 0 "from A's step to B's" compare plan.json other.json
expect 0 "MFU counts 3 forwards of the model" compare plan.json other.json
"$meshplan" compare plan.json other.json --json >waterfall.json || fail "no waterfall"
# One file with both.
expect 0 "" compare predicted.json measured.json --chrome both.json.gz
# A file a rank, as PyTorch's profiler writes them: what reads those reads ours.
expect 0 "" simulate plan.json --kineto kineto
expect 0 "kernels" compare plan.json kineto/rank-0.json.gz
expect 2 "kineto: " simulate plan.json --kineto kineto

"$meshplan" compare predicted.json profile.json --json >compared.json || fail "no JSON"
python3 - <<'PYTHON' || fail "what was written is wrong"
import collections, gzip, json, os
# The terms of the waterfall sum to the difference.
waterfall = json.load(open("waterfall.json"))
sum_s = waterfall["a"]["step_time_s"] + sum(term["seconds"] for term in waterfall["terms"])
assert abs(sum_s - waterfall["b"]["step_time_s"]) < 1e-9 * sum_s, sum_s
# Products are matched by their shapes.
kernels = json.load(open("compared.json"))["kernels"]
assert kernels["by_size"] == kernels["kernels"] - 1 > 100, kernels
# Every rank has its file.
ranks = {span["rank"] for span in json.load(open("predicted.json"))["spans"]}
assert len(os.listdir("kineto")) == len(ranks), os.listdir("kineto")
# In the file with both every arrow has both ends, and no track overlaps.
events = json.load(gzip.open("both.json.gz"))["traceEvents"]
tracks, ends, names = collections.defaultdict(list), collections.Counter(), {}
for event in events:
    if event["ph"] == "X":
        assert event["dur"] >= 0
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    if event["ph"] in "sf":
        ends[event["id"], event["ph"]] += 1
    if event["name"] == "process_name":
        names[event["pid"]] = event["args"]["name"]
for slices in tracks.values():
    slices.sort()
    assert all(a[1] <= b[0] + 1e-3 for a, b in zip(slices, slices[1:]))
assert ends and all(count == 1 for count in ends.values())
assert {number for number, kind in ends if kind == "s"} == {number for number, kind in ends if kind == "f"}
assert "rank 0 predicted" in names.values() and "rank 0 measured" in names.values()
assert {event["pid"] for event in events} == set(names)
PYTHON

refused "compare needs a prediction and a measurement"
refused "compare needs a prediction and a measurement" plan.json
refused "compare needs a prediction and a measurement" plan.json measured.json --step-time 3
refused "--step-time -3: expected seconds" plan.json --step-time -3
refused "plan.json: a plan, expected what was measured" profile.json plan.json
refused "expected a predicted trace or a plan; what was measured comes second" profile.json measured.json
refused "the first is measured" measured.json predicted.json
refused "a plan, expected what was measured" predicted.json plan.json
refused "different plans" other.json measured.json
refused "cut.json.gz: gzip: ends after 5000 bytes" plan.json cut.json.gz
refused "garbage.json.gz: gzip: " plan.json garbage.json.gz
refused "cut_profile.json:1:" plan.json cut_profile.json
refused "empty.json:1: none of 0 lines" plan.json empty.json
refused "words.log:1: none of 2 lines says the time of a step" plan.json words.log
refused "other_job.json: distributedInfo.world_size: 16, expected 8 as in the plan" plan.json other_job.json
refused "mesured.json: no such file; near it: measured.json" plan.json mesured.json
refused "megatron.log:1: global batch size: '16', expected 32 as in the plan" plan.json megatron.log \
  --set workload.global_batch_size=32
refused "--chrome both.json: needs the operations of both, and the measurement has none" plan.json --step-time 3 --chrome both.json
expect 2 "--timeline: needs every operation" simulate plan.json --timeline --software megatron-core
finish
