#!/usr/bin/env bash
# Trains for a while and says whether memory stays flat and throughput steady.
# Usage: scripts/soak.sh [MINUTES [PLAN.json]]      default: 60 minutes, two stages of two tp ranks
# Prints every figure that the verdict rests on; exit code 1 if one of them drifts. The run's log and the
# samples stay in OUT (default build/soak). MESHPLAN is the program (default build/release/cli/meshplan).
set -euo pipefail
minutes=${1:-60}
root=$(cd "$(dirname "$0")/.." && pwd)
meshplan=${MESHPLAN:-$root/build/release/cli/meshplan}
[ -x "$meshplan" ] || { echo "soak: no $meshplan; build it first, or set MESHPLAN" >&2; exit 2; }
out=${OUT:-$root/build/soak}
mkdir -p "$out"
plan=${2:-$out/plan.json}
if [ $# -lt 2 ]; then
  cat >"$out/model.json" <<'JSON'
{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
 "num_key_value_heads": 4, "intermediate_size": 688, "vocab_size": 256,
 "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": false}
JSON
  "$meshplan" simulate --model "$out/model.json" --cluster cpu-host --global-batch 8 --seq-len 128 \
    --tp 2 --pp 2 --out "$plan" >/dev/null
fi

"$meshplan" run "$plan" --steps 1000000000 --time-every 0 --verify 200 --log "$out/log.jsonl" \
  >"$out/stdout" 2>"$out/stderr" &
job=$!
trap 'kill -TERM "$job" 2>/dev/null || true' EXIT

# The children of the job that are meshplan: their resident memory as the kernel counts it, in KiB,
# summed. A guardian has the same name and counts too.
resident_kib() {
  ps -e -o ppid=,pid=,rss= | awk -v root="$1" '
    { parent[$2] = $1; rss[$2] = $3 }
    END {
      for (pid in rss) {
        for (p = pid; p in parent && p != root; p = parent[p]);
        if (p == root) sum += rss[pid]
      }
      print sum + 0
    }'
}

: >"$out/samples"
start=$SECONDS
while [ $((SECONDS - start)) -lt $(awk "BEGIN {print int($minutes * 60)}") ]; do
  kill -0 "$job" 2>/dev/null || { cat "$out/stderr" >&2; echo "soak: the run has ended by itself" >&2; exit 1; }
  echo "$((SECONDS - start)) $(resident_kib "$job")" >>"$out/samples"
  sleep 2
done
kill -TERM "$job"
wait "$job" || true
trap - EXIT

python3 - "$out/log.jsonl" "$out/samples" <<'PY'
import json
import statistics
import sys

MIB = 2**20
steps = []
for line in open(sys.argv[1]):
    try:
        step = json.loads(line)
    except ValueError:
        continue  # the line that the end of the run cut off
    if step["kind"] == "step":
        steps.append(step)
samples = [tuple(map(int, line.split())) for line in open(sys.argv[2])]
if len(steps) < 50 or len(samples) < 20:
    sys.exit(f"soak: {len(steps)} steps and {len(samples)} samples are too few for a verdict")


def ends(values):
    """Medians of the first and the last fifth, without the first tenth: warm-up."""
    values = values[len(values) // 10:]
    fifth = max(1, len(values) // 5)
    return statistics.median(values[:fifth]), statistics.median(values[-fifth:])


failed = False


def verdict(what, before, after, unit, drift, limit, good, bad):
    global failed
    failed |= drift > limit
    print(f"{what:<34} {before:12.2f} -> {after:12.2f} {unit:<9} "
          f"{bad if drift > limit else good} ({drift:+.1%}, limit {limit:.0%})")


print(f"{len(steps)} steps, {len(samples)} samples over {samples[-1][0]} s")
before, after = ends([kib / 1024 for _, kib in samples])
verdict("resident, all processes (ps)", before, after, "MiB", after / before - 1, 0.02, "flat", "GROWS")
before, after = ends([step["resident_bytes"] / MIB for step in steps])
verdict("resident, largest rank (log)", before, after, "MiB", after / before - 1, 0.02, "flat", "GROWS")
before, after = ends([step["tokens_per_s"] for step in steps])
verdict("throughput", before, after, "tokens/s", 1 - after / before, 0.10, "steady", "FALLS")
losses = [step["loss"] for step in steps]
before, after = ends(losses)
print(f"{'loss':<34} {before:12.4f} -> {after:12.4f}")
warnings = sum(len(step["warnings"]) for step in steps)
print(f"{'warnings':<34} {warnings:12d}")
sys.exit(failed)
PY
