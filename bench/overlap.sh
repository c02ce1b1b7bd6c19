#!/usr/bin/env bash
# Communication of data parallelism that nothing hides, with and without a progress thread: measured
# and predicted. Both kinds of run take turns, so that a busy machine disturbs both alike. Exposed is
# what the rank that waits least waits: the others wait that much longer for it, not for messages
# (column "slowest"; the simulator's ranks are equally fast).
#   bench/overlap.sh [cluster.json] [folder]
# Without a cluster file the machine is calibrated first (a minute or two). Bounds, judged at the end:
# where each rank has a second core the exposed time at least halves, and where it has none the
# prediction of it is within 10 %.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
meshplan=$root/build/release/cli/meshplan
cluster=${1:-} out=${2:-$root/build/overlap}
model=tiny-llama seq=128 batch=8 ranks=2 steps=40 turns=3
mkdir -p "$out"
if [ -z "$cluster" ]; then
  cluster=$out/cluster.json
  "$meshplan" calibrate --model $model --seq-len $seq --global-batch $batch --precision fp32 \
    --micro-batches 1 --ranks $ranks --max-tp 1 --out "$cluster"
fi

plan() { # plan NAME FLAGS...
  local name=$1; shift
  "$meshplan" simulate --model $model --cluster "$cluster" --ranks $ranks --seq-len $seq \
    --global-batch $batch --precision fp32 --dp $ranks --bucket-bytes 1048576 "$@" \
    --out "$out/$name.json" --json > "$out/$name.simulated"
}
run() { # run NAME TURN
  "$meshplan" run "$out/$1.json" --steps $steps --any-placement --quiet --log "$out/$1.$2.jsonl"
}
for zero in 0 2; do
  plan zero$zero-plain --zero $zero
  plan zero$zero-thread --zero $zero --progress-thread
done
rm -f "$out"/*.jsonl
for turn in $(seq $turns); do
  for zero in 0 2; do for kind in plain thread; do run zero$zero-$kind "$turn" > /dev/null; done; done
done
python3 - "$out" $ranks "$(nproc)" <<'PRINT'
import glob, json, statistics, sys
folder, ranks, cores = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WARM_UP = 5

def measured(plan):
    """Medians over the steps of all turns: exposed seconds of the dp group on the rank that has
    fewest, what others have more, mean over ranks; step."""
    exposed, slowest, steps = [], [], []
    for file in glob.glob(f"{folder}/{plan}.*.jsonl"):
        lines = [json.loads(line) for line in open(file)]
        for line in [l for l in lines if l["kind"] == "step"][WARM_UP:]:
            timing = line["timing"]
            dp = [group["exposed_s"] for name, group in timing["communication"].items()
                  if name.startswith("dp")]
            exposed.append(sum(group["min"] for group in dp))
            slowest.append(sum(group["mean"] - group["min"] for group in dp))
            steps.append(line["step_time_s"])
    return tuple(map(statistics.median, (exposed, slowest, steps)))

def predicted(name):
    report = json.load(open(f"{folder}/{name}.simulated"))
    return report["stages"][0]["breakdown_s"]["dp"], report["step_time_s"]

spare = cores >= 2 * ranks
print(f"{ranks} ranks on {cores} cores: {'a spare core each' if spare else 'no spare core each'}")
print(f"{'plan':<14}{'exposed ms':>11}{'predicted':>11}{'error':>8}{'slowest ms':>12}"
      f"{'step ms':>10}{'predicted':>11}")
failed = False
for zero in (0, 2):
    for kind in ("plain", "thread"):
        name = f"zero{zero}-{kind}"
        (exposed, slowest, step), (forecast, forecast_step) = measured(name), predicted(name)
        error = forecast / exposed - 1
        failed |= not spare and abs(error) > 0.10
        print(f"{name:<14}{exposed*1e3:11.3f}{forecast*1e3:11.3f}{error*100:7.1f}%{slowest*1e3:12.3f}"
              f"{step*1e3:10.2f}{forecast_step*1e3:11.2f}")
    ratio = measured(f"zero{zero}-thread")[0] / measured(f"zero{zero}-plain")[0]
    failed |= spare and ratio > 0.5
    print(f"  exposed with / without the thread: {ratio:.2f}")
print("a bound is broken" if failed else "within the bounds")
sys.exit(failed)
PRINT
