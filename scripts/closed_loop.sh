#!/usr/bin/env bash
# Predicts twenty plans of a dense and a MoE model over 1 to 4 CPU ranks from operators and messages that
# were measured by themselves, then runs all of them in the same session: every kind of parallelism occurs.
#   scripts/closed_loop.sh [--rounds N] [--csv FILE] [--markdown FILE] [folder for the results]
# Without --rounds the plans take turns at least twice, and at most three times if a median still moves.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/measured_plans.sh"
rounds=(--rounds 2 --most-rounds 3)
files=()
folder=$root/build/closed_loop
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=(--rounds "${2:?how many}" --most-rounds "$2"); shift 2 ;;
    --csv | --markdown) files+=("$1" "${2:?which file}"); shift 2 ;;
    -*) echo "$1: unknown; --rounds N, --csv FILE, --markdown FILE, or a folder" >&2; exit 2 ;;
    *) folder=$1; shift ;;
  esac
done
begin "$folder"
seq_len=256 global_batch=8

say "1. measure this machine: operators of both models, and communication"
measure tiny-llama "$out/dense.json"
measure tiny-moe "$out/experts.json"

say "   and how unevenly the router of this model loads two ranks with this text: counts, no times"
workload_of tiny-moe "$out/experts.json"
"$meshplan" simulate "${workload[@]}" --dp 2 --ep 2 --micro-batch 2 --out "$out/routing.json" >/dev/null
"$meshplan" run "$out/routing.json" --steps 4 --data "$text" --quiet --log "$out/routing.jsonl"

say "2. predict twenty plans"
workload_of tiny-llama "$out/dense.json"
simulate d01-one-rank --micro-batch 2
simulate d02-full-recompute --micro-batch 4 --recompute full
simulate d03-tp2 --tp 2 --micro-batch 4
simulate d04-tp2-sp --tp 2 --sp --micro-batch 2
simulate d05-pp2 --pp 2 --micro-batch 1
simulate d06-pp2-vpp2 --pp 2 --vpp 2 --micro-batch 1
simulate d07-dp2 --dp 2 --micro-batch 4
simulate d08-dp2-zero1 --dp 2 --micro-batch 2 --zero 1
simulate d09-dp2-zero3 --dp 2 --micro-batch 4 --zero 3
simulate d10-cp2 --cp 2 --micro-batch 2
simulate d11-tp2-pp2 --tp 2 --pp 2 --micro-batch 2
simulate d12-cp2-dp2-zero2 --cp 2 --dp 2 --micro-batch 2 --zero 2
simulate d13-dp4-selective --dp 4 --micro-batch 2 --recompute selective
workload_of tiny-moe "$out/experts.json"
simulate m01-one-rank --micro-batch 2
simulate m02-dp2 --dp 2 --micro-batch 2
workload+=(--expert-imbalance "$out/routing.jsonl")
simulate m03-ep2 --dp 2 --ep 2 --micro-batch 2
simulate m04-tp2-sp-ep2 --tp 2 --sp --ep 2 --micro-batch 2
simulate m05-pp2-dp2-ep2 --pp 2 --dp 2 --ep 2 --micro-batch 1
simulate m06-dp4-ep2-zero1 --dp 4 --ep 2 --micro-batch 2 --zero 1
simulate m07-ep2-full-recompute --dp 4 --ep 2 --micro-batch 2 --recompute full

say "3. run all of them in turns on real text"
"$meshplan" trial "${rounds[@]}" "${files[@]}" --data "$text" "$out"/plans/*.json |
  tee "$out/trial.txt"
