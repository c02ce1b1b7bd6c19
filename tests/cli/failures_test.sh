#!/usr/bin/env bash
# Failures are planned: plan --mtbf, sweep --mtbf and simulate --failures of the command given as $1.
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# expect CODE PATTERN ARGUMENTS...: of meshplan; a fixed string in its output
expect() { check_output -F "$1" "$2" "$meshplan" "${@:3}"; }

job=(--model llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 64)

# --- plans are ranked by step over goodput
expect 0 "over goodput" plan "${job[@]}" --mtbf 50000h --out plan.json
grep -q "^failures one device in 50,000 h: one of 64 every 32.6 days, 0.0307 a day" stdout || fail "no line of failures"
grep -q "^#1: goodput " stdout || fail "the first lines lack the goodput"
grep -q "^  goodput .* %: a failure every" stdout || fail "the reasons lack the goodput"
grep -q "^assumed  a file system of 8 GB/s" stdout || fail "the file system is not said to be assumed"
"$meshplan" plan "${job[@]}" >without
grep -q goodput without && fail "goodput without --mtbf"
expect 0 "failures, goodput" plan "${job[@]}" --mtbf 5.7y --tokens 1e12
expect 0 '"goodput"' plan "${job[@]}" --mtbf 2000d --json
cp stdout one.json
"$meshplan" plan "${job[@]}" --mtbf 2000d --json --threads 1 >two.json
cmp -s one.json two.json || fail "the number of threads changes plans with failures"
expect 0 "goodput" sweep --model tiny-llama --cluster dgx-h100 --devices 8..16 --global-batch 16 --seq-len 128 \
  --mtbf 50000h --tokens 1e10

# --- what is no MTBF
expect 2 "--mtbf 50000: expected a number with its unit: h, d or y; nearest: 50000h" plan "${job[@]}" --mtbf 50000
for mtbf in 0h -5h nanh infh 5w h 1e300y; do
  expect 2 "--mtbf" plan "${job[@]}" "--mtbf=$mtbf"
done
expect 2 "they fail before a restart of" plan "${job[@]}" --mtbf 0.01h
expect 2 "--repair-hours: nothing fails without --mtbf" plan "${job[@]}" --repair-hours 3
expect 2 "--spare-nodes: belongs to --failures" simulate plan.json --spare-nodes 1

# --- months of failures
expect 0 "worth having" simulate plan.json --failures --mtbf 500h --trials 50
grep -q "checkpoints in .*goodput" stdout || fail "checkpoints are not shown side by side"
grep -q "closed form (Daly 2006)" stdout || fail "no closed form beside the trials"
expect 0 "one device in 50,677 h" simulate plan.json --failures --trials 5
"$meshplan" simulate plan.json --failures --json --trials 20 --seed 5 >first.json
"$meshplan" simulate plan.json --failures --json --trials 20 --seed 5 >second.json
cmp -s first.json second.json || fail "a seed does not say everything"
"$meshplan" simulate plan.json --failures --json --trials 20 --seed 6 | cmp -s - first.json && fail "another seed, the same trials"
expect 0 "goodput" simulate plan.json --failures --estimate --days 3650 --trials 20 --checkpoint-interval 1e8
expect 0 "goodput" simulate "${job[@]}" --tp 8 --dp 8 --software megatron-core --failures --trials 5
expect 0 "needs a second node" simulate --model tiny-llama --cluster cpu-host --dp 2 --global-batch 4 --seq-len 128 \
  --failures --trials 5
expect 0 "and the job waits" simulate "${job[@]}" --tp 8 --pp 8 --failures --trials 5
expect 0 "partner's memory" simulate plan.json --failures --trials 5 --checkpoints partner --smaller-world wait
expect 0 '"$schema"' simulate --schema

# --- what cannot be played
expect 2 "9 spare nodes beside 8 of the job; nearest: 8" simulate plan.json --failures --spare-nodes 9
expect 2 "spare nodes" simulate plan.json --failures --spare-nodes=-1
expect 2 "need a second node" simulate --model tiny-llama --cluster cpu-host --dp 2 --global-batch 4 --seq-len 128 \
  --failures --checkpoints partner
expect 2 "days to play" simulate plan.json --failures --days 0
expect 2 "trials; expected 1 to" simulate plan.json --failures --trials 0
expect 2 "takes too long to play" simulate plan.json --failures --mtbf 50h --days 3650 --trials 100000
expect 2 "--seed -1" simulate plan.json --failures --seed=-1
expect 2 "checkpoint interval" simulate plan.json --failures --checkpoint-interval 0
expect 2 "storage bandwidth" simulate plan.json --failures --storage-bandwidth=-3
expect 2 "--trace: is of a single step" simulate plan.json --failures --trace trace.json
expect 2 "did you mean 'storage'" simulate plan.json --failures --checkpoints storag

finish
