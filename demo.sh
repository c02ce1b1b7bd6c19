#!/usr/bin/env bash
# The main job from end to end on this machine: measure it, plan a small Llama-style model for it, run ten
# plans for real, and lay predicted beside measured.
#   ./demo.sh [folder for the results]      default: build/demo
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/scripts/measured_plans.sh"
begin "${1:-$root/build/demo}"
model=tiny-llama seq_len=256 global_batch=16

say "1. measure this machine: operators and communication only (about a minute)"
# Micro-batches up to what plan may choose for two ranks: shapes in between would be guessed, and a search
# chooses where a guess is most optimistic.
measure $model "$out/here.json" 1,2,4,8

say "2. plan $model for it: one rank per core"
workload_of $model "$out/here.json"
"$meshplan" plan "${workload[@]}" --gpus "$(nproc)" --out "$out/plans/00-choice.json"

say "3. predict it and nine other plans, then run all of them in turns on real text"
simulate 01-one-rank --micro-batch 2
simulate 02-one-rank-full-recompute --micro-batch 4 --recompute full
simulate 03-tp2 --tp 2 --micro-batch 4
simulate 04-tp2-sp --tp 2 --sp --micro-batch 2
simulate 05-pp2 --pp 2 --micro-batch 1
simulate 06-dp2 --dp 2 --micro-batch 4
simulate 07-tp2-pp2 --tp 2 --pp 2 --micro-batch 2
simulate 08-pp4-gpipe --pp 4 --micro-batch 1 --schedule gpipe
simulate 09-dp4-selective --dp 4 --micro-batch 2 --recompute selective
# A figure on one line per plan, the worst one named, a naive predictor beside it.
"$meshplan" trial --most-rounds 5 --data "$text" "$out"/plans/*.json | tee "$out/trial.txt"
