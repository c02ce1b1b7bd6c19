#!/usr/bin/env bash
# What a rank's process takes by itself: a calibration says it, however much that has measured before, and
# the kernel says it of a rank that trains. Usage: memory_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"
source "$tests/ending/job_processes.sh"

# Small operators are timed so often that their times, which this process holds, are far more than it was.
"$meshplan" calibrate --out here.json --model model.json --seq-len 16 --micro-batches 1,2,4 --ranks 1 \
  --seconds-per-operator 0.1 --communication-seconds 0.1 >stdout 2>stderr || fail "no cluster: $(cat stdout stderr)"
"$meshplan" simulate --model model.json --cluster here.json --global-batch 4 --seq-len 16 \
  --out plan.json >stdout 2>stderr || fail "no plan: $(cat stderr)"

"$meshplan" run plan.json --data text.txt --steps 1000000 --log steps.jsonl >stdout 2>stderr &
job=$!
for _ in $(seq 600); do
  [ "$(head -5 steps.jsonl 2>/dev/null | wc -l)" -eq 5 ] && break
  sleep 0.1
done
kib=$(awk '$1 == "VmHWM:" {print $2}' "/proc/$(rank_processes | head -1)/status")
kill -TERM $job
wait $job
wait_until_gone

python3 - "${kib:-0}" <<'PY' || fail "the memory of a rank is not what was predicted"
import json, sys
measured = float(sys.argv[1]) / 1024
plan = json.load(open("plan.json"))
predicted = plan["prediction"]["peak_memory_bytes"] / 2**20
base = json.load(open("here.json"))["device"]["runtime_base_mib"]
print(f"predicted {predicted:.1f} MiB, {base:.1f} of them for the process; measured {measured:.1f} MiB")
sys.exit(not (measured > 0 and abs(predicted / measured - 1) < 0.1))
PY

finish
