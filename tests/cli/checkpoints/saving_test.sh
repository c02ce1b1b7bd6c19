#!/usr/bin/env bash
# What saving costs is predicted and measured: bytes of a rank by simulate, by a run's log and by the files
# that it writes. Usage: saving_test.sh PATH_OF_meshplan
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
source "$tests/tiny_training.sh"

nodes=(--hosts localhost:1,127.0.0.1:1 --any-placement)

# --- simulate, a run and its files name the same bytes
for layout in "--dp 2" "--tp 2" "--pp 2" "--dp 2 --zero 1"; do
  rm -rf plan.json saved log.jsonl
  # shellcheck disable=SC2086
  make_plan plan.json $layout
  expect 0 '"bytes_per_rank"' "$meshplan" simulate plan.json --checkpoint-every 2 --memory-every 1 --json
  cp stdout simulated.json
  expect 0 "^saving +disk 2 times, .* MiB a rank \(predicted [0-9.]+\).*; memory [0-9]+ times" "$meshplan" run plan.json \
    "${nodes[@]}" --data text.txt --steps 5 --checkpoint-every 2 --memory-every 1 --checkpoint-dir saved --log log.jsonl
  python3 - <<'PY' || fail "$layout: bytes differ"
import glob, json, os, struct
plan, simulated = json.load(open("plan.json")), json.load(open("simulated.json"))["saving"]
# The model as config.json describes it: attention with 4 heads of queries and 2 of keys and values.
h, kv, ffn, vocabulary, layers = 64, 32, 96, 256, 2
parameters = 2 * vocabulary * h + h + layers * (2 * h * h + 2 * h * kv + 3 * h * ffn + 2 * h)
assert simulated["bytes"] == 12 * parameters, (simulated, 12 * parameters)
def data_bytes(path):
    with open(path, "rb") as file:
        return os.path.getsize(path) - 8 - struct.unpack("<Q", file.read(8))[0]
shares = [data_bytes(path) for path in glob.glob("saved/step-5/rank-*.safetensors")]
assert sum(shares) == 12 * parameters and len(shares) == 2, shares
assert max(shares) == simulated["bytes_per_rank"], (shares, simulated)
saving = [json.loads(line) for line in open("log.jsonl")][-1]["saving"]
for place in saving.values():
    assert place["saves"] > 0 and place["bytes_per_rank"] == max(shares), place
    assert place["predicted"]["bytes_per_rank"] == max(shares), place
for place in ("disk", "memory"):
    assert saving[place]["predicted"]["stall_s"] == simulated[place]["stall_s"], place
PY
done
expect 0 "^saved to disk by a rank, MiB .* \+0.0 %" "$meshplan" compare plan.json log.jsonl
grep -qE "^saved to memory by a rank, MiB .* \+0.0 %" stdout || fail "no bytes in memory: $(cat stdout)"
grep -qE "^stall of a save to memory, ms +[0-9.]+ +[0-9.]+" stdout || fail "no stall: $(cat stdout)"
expect 0 '"bytes_per_rank"' "$meshplan" compare plan.json log.jsonl --json

# --- what simulate says
expect 0 "^saving  a checkpoint holds .* of the fullest rank" "$meshplan" simulate plan.json --checkpoint-every 20 \
  --memory-every 1
grep -qE "^  disk    every 20 steps \(.*\): stall .*, [0-9.]+ % of the time" stdout || fail "no disk: $(cat stdout)"
grep -q "GB/s of the file system (assumed: 1 GB/s a node; --storage-bandwidth)" stdout || fail "not said to be assumed"
grep -q "^  memory  every step" stdout || fail "no memory: $(cat stdout)"
grep -q "3 copies of a rank's part, .* of a node; no other node to copy to" stdout || fail "no copies: $(cat stdout)"
expect 0 "^  disk    every 2 steps" "$meshplan" simulate plan.json --checkpoint-every 2 --estimate
expect 0 "^  disk    every [0-9]+ steps" "$meshplan" simulate plan.json --checkpoint-every auto --mtbf 3h
expect 0 "too often: the next one waits for it; complete in time every [0-9]+ steps or more" "$meshplan" simulate \
  plan.json --checkpoint-every 1 --storage-bandwidth 1e-4
expect 0 "on the next node after" "$meshplan" simulate --model llama3-8b --cluster dgx-h100 --gpus 16 --tp 8 --dp 2 \
  --global-batch 16 --memory-every 1
grep -q "6 copies of a rank's part" stdout || fail "no copies for another node: $(cat stdout)"
"$meshplan" simulate plan.json >plain
grep -q "^saving" plain && fail "saving is shown without being asked for"

# --- a cluster that states its file system
"$meshplan" clusters cpu-host --json >cluster.json || fail "no cluster"
python3 - <<'PY'
import json
cluster = json.load(open("cluster.json"))
cluster["storage_gb_per_s"] = 0.25
json.dump(cluster, open("cluster.json", "w"))
PY
expect 0 "at 0.25 GB/s of the file system$" "$meshplan" simulate --model model.json --cluster cluster.json --dp 2 \
  --global-batch 4 --seq-len 32 --checkpoint-every 5
expect 0 "at 3 GB/s of the file system$" "$meshplan" simulate --model model.json --cluster cluster.json --dp 2 \
  --global-batch 4 --seq-len 32 --checkpoint-every 5 --storage-bandwidth 3

# --- what cannot be meant
expect 2 "\-\-checkpoint-every often: must be a number of steps" "$meshplan" simulate plan.json --checkpoint-every often
expect 2 "auto: needs --mtbf, how long a device" "$meshplan" simulate plan.json --checkpoint-every auto
expect 2 "\-\-mtbf: belongs to --failures" "$meshplan" simulate plan.json --mtbf 3h --checkpoint-every 3
expect 2 "\-\-storage-bandwidth: belongs to --failures" "$meshplan" simulate plan.json --storage-bandwidth 3
expect 2 "\-\-storage missing: no such folder" "$meshplan" calibrate --out here.json --storage missing
expect 2 "storage bandwidth" "$meshplan" simulate plan.json --checkpoint-every 3 --storage-bandwidth=-3
expect 2 "\-\-memory-every: is of a single step" "$meshplan" simulate plan.json --failures --memory-every 1
expect 2 "\-\-checkpoint-every: needs every operation" "$meshplan" simulate --model llama3-8b --cluster dgx-h100 --gpus 8 \
  --tp 8 --global-batch 16 --software megatron-core --checkpoint-every 3

finish
