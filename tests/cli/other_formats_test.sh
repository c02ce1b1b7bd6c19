#!/usr/bin/env bash
# torchtitan, DeepSpeed, nanotron and accelerate by the command given as $1; the repository is $2.
set -u
meshplan=$1
repository=$2
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# expect CODE PATTERN ARGUMENTS...: of meshplan; a fixed string in its output
expect() { check_output -F "$1" "$2" "$meshplan" "${@:3}"; }

# price PLAN ...: what simulate prints on standard output, but for the settings that a file states
price() { "$meshplan" simulate "$@" 2>/dev/null >printed || echo "simulate $* fails"; grep -v "^stack  \|^assumed  " printed; }

mkdir bin
for program in torchrun accelerate; do
  printf '#!/bin/sh\necho "$@"\n' >bin/$program
done
chmod +x bin/*

# round FORMAT FILE: plan.json comes back from FORMAT, is priced alike, and its script starts something
round() {
  rm -rf out
  expect 0 "run.sh" export plan.json --to "$1" --out out
  bash -n out/run.sh || fail "$1: run.sh has syntax errors"
  expect 0 "file     out/$2 (" import "out/$2" --model llama3-8b --cluster dgx-h100 --out back.json
  software=$(sed -n 's/^priced   as runs of //p' stdout)
  price plan.json --software "$software" >ours
  price "out/$2" --model llama3-8b --cluster dgx-h100 >theirs
  cmp -s ours theirs || fail "$1 is priced otherwise: $(diff ours theirs)"
  (cd out && PATH=$PWD/../bin:$PATH TRAIN=train.py NODE_RANK=1 ./run.sh --mine >../passed) || fail "$1: run.sh"
  grep -q -- "--mine$" passed || fail "$1: run.sh passes on: $(cat passed)"
}

plan() { "$meshplan" plan --model llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 128 --seq-len 4096 --out plan.json "$@" >/dev/null 2>&1 ||
  fail "plan $*"; }

plan --software torchtitan
round torchtitan torchtitan_plan.py
plan --software torchtitan --pp 1
round accelerate-fsdp accelerate.yaml
plan --software nanotron --pp 1
round nanotron nanotron.yaml
plan --software deepspeed --tp 1 --pp 1
round deepspeed ds_config.json
round accelerate-deepspeed accelerate.yaml
expect 0 "job.sbatch" export plan.json --to slurm --launch deepspeed --out job

# --- a configuration as one finds it
cp "$repository/docs/export/examples/llama3_70b.toml" .
expect 2 "-1 takes the GPUs that are left, and the file does not say how many there are; give it with --gpus" \
  import llama3_70b.toml
expect 0 "plan     tp8 sp pp2 vpp2 dp4 mbs1 full-recompute interleaved" import llama3_70b.toml --gpus 64
expect 0 "software torchtitan" simulate llama3_70b.toml --gpus 64 --cluster dgx-h100
expect 0 "no rule of torchtitan is broken" check llama3_70b.toml --gpus 64 --cluster dgx-h100
expect 0 "torchtitan_plan.py" export llama3_70b.toml --gpus 64 --to torchtitan --out today
price llama3_70b.toml --gpus 64 --cluster dgx-h100 >toml
price today/torchtitan_plan.py --cluster dgx-h100 >python
cmp -s toml python || fail "TOML and Python are priced otherwise: $(diff toml python)"
sed 's/"full"/"ful"/' llama3_70b.toml >wrong.toml
expect 2 "wrong.toml: activation_checkpoint.mode: unknown value 'ful'; did you mean 'full'?" import wrong.toml --gpus 64
printf 'def a():\n    return C()\ndef b():\n    return C()\n# torchtitan parallelism\n' >two.py
expect 2 "2 functions return configurations: a, b" import two.py
expect 2 "torchtitan cannot be asked for this plan:" export plan.json --to torchtitan --out refused
[ -e refused ] && fail "a refused plan left a folder"

finish
