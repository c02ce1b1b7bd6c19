#!/usr/bin/env bash
# Plans out to other stacks and back, with the command given as $1.
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# expect CODE PATTERN ARGUMENTS...: of meshplan; a fixed string in its output
expect() { check_output -F "$1" "$2" "$meshplan" "${@:3}"; }

expect 0 "next" plan --model llama3-70b --cluster dgx-h100 --gpus 128 --global-batch 1024 --seq-len 8192 \
  --software megatron-core --out plan.json
grep -q "meshplan export plan.json --to megatron" stdout || fail "plan does not say how to export"

# --- a folder, whole or not at all
expect 0 "Megatron-LM: launch script" export plan.json --to megatron --out run
for file in run.sh validate.sh README.md plan.json; do
  [ -f "run/$file" ] || fail "there is no run/$file"
done
[ -x run/run.sh ] && [ -x run/validate.sh ] || fail "scripts cannot be executed"
bash -n run/run.sh && bash -n run/validate.sh || fail "scripts have syntax errors"
cmp -s plan.json run/plan.json || fail "plan.json is another plan"
expect 2 "run: holds files already; name another folder, or replace an earlier export in it with --force" \
  export plan.json --to megatron --out run

# expect_in FOLDER CODE PATTERN ARGUMENTS...: the same, started there
expect_in() { check_output -F "$2" "$3" env -C "$1" "$meshplan" "${@:4}"; }

# --- --force: what an earlier export wrote, and nothing else
mkdir run/data
echo mine | tee run/mine run/data/book.txt >/dev/null
expect 0 "run.sh" export plan.json --to megatron --out run/ --force
expect 0 "run.sh" export plan.json --to megatron --out run/../run/ --force
expect 0 "run.sh" export plan.json --to megatron --out ./run/data/.. --force
[ -f run/run.sh ] && [ "$(cat run/mine run/data/book.txt)" = "mine
mine" ] || fail "--force touched files of others: $(ls -AR run)"
expect 0 "recipe.py" export plan.json --to megatron-bridge --out run --force
[ -f run/recipe.py ] && [ -f run/mine ] && [ ! -e run/validate.sh ] || fail "of two exports: $(ls -A run)"
expect 0 "validate.sh" export plan.json --to megatron --out run --force
echo "# mine" >>run/validate.sh
expect 2 "run: validate.sh was changed since it was written; move it away, or name another folder" \
  export plan.json --to megatron --out run --force
expect 0 "recipe.py" export plan.json --to megatron-bridge --out run --force
grep -q "^# mine" run/validate.sh || fail "a file that was changed is gone"
rm -r run && "$meshplan" export plan.json --to megatron --out run >/dev/null

# The folder of a project, and of the plan itself.
mkdir -p project/.git && echo "A project" >project/README.md && cp plan.json project/plan.json
before=$(cd project && find . -type f -exec sha256sum {} + | sort)
expect 2 "README.md is of other origin; move it away, or name another folder" \
  export plan.json --to megatron --out project --force
expect_in project 2 "README.md is of other origin" export plan.json --to megatron --out . --force
[ "$before" = "$(cd project && find . -type f -exec sha256sum {} + | sort)" ] || fail "a project was changed"
mv project/README.md project/HELLO.md
expect_in project 0 "run.sh" export plan.json --to megatron --out . --force
[ -d project/.git ] && [ -x project/run.sh ] && [ -f project/HELLO.md ] || fail "project: $(ls -A project)"
expect_in project 0 "job.sbatch" export plan.json --to slurm --launch megatron --out ../project --force
cmp -s plan.json project/plan.json || fail "the plan beside an export is gone"
mkdir project/sub
expect_in project/sub 0 "run.sh" export ../plan.json --to megatron --out .. --force
mkdir elsewhere && echo mine >elsewhere/mine && ln -s elsewhere link && ln -s nowhere dangling
expect 0 "run.sh" export plan.json --to megatron --out link --force
[ -L link ] && [ -f elsewhere/run.sh ] && [ -f elsewhere/mine ] || fail "through a link: $(ls -A elsewhere)"
expect 2 "dangling: is a link to nowhere, which is not there" export plan.json --to megatron --out dangling --force
mkdir linked && echo mine >mine && ln -s ../mine linked/run.sh
expect 2 "linked: --force replaces what an earlier export wrote, and run.sh is of other origin" \
  export plan.json --to megatron --out linked --force
[ "$(cat mine)" = mine ] || fail "a link was followed"
# A list of what was written that names files elsewhere removes none.
cp -r run listed
echo mine >mine
sed -i 's/"README.md"/"..\/mine"/' listed/.meshplan-files.json
expect 2 '"../mine": expected the name of a file of this folder' export plan.json --to megatron --out listed --force
# What cannot be written to its end leaves the old export whole.
before=$(find run -type f -exec sha256sum {} + | sort)
(trap '' XFSZ && ulimit -f 4 && "$meshplan" export plan.json --to slurm --launch megatron --out run --force) \
  >stdout 2>stderr && fail "a full disk was not noticed"
grep -q "cannot be written" stderr || fail "of a full disk: $(cat stderr)"
[ "$before" = "$(find run -type f -exec sha256sum {} + | sort)" ] || fail "half an export: $(ls -lA run)"
mkdir empty
expect 0 "run.sh" export plan.json --to megatron --out empty
expect 2 "plan.json: is a file; name a folder" export plan.json --to megatron --out plan.json
expect 1 "there is no folder nowhere" export plan.json --to megatron --out nowhere/run
"$meshplan" simulate plan.json --software meshplan --set zero_stage=2 --out zero2.json >/dev/null 2>&1
expect 2 "zero2.json: Megatron-LM has no words for this plan:" export zero2.json --to megatron --out refused
[ -e refused ] && fail "a refused plan left a folder"
ls ./*.tmp ./*.old 2>/dev/null && fail "temporary folders were left"
expect 2 "unknown format 'megatrom'; nearest: megatron" export plan.json --to megatrom
expect 2 "--to is missing; one of megatron" export plan.json
expect 2 "a plan is missing" export --to megatron

# --- what the script passes on
mkdir bin
printf '#!/bin/sh\necho "$@"\n' >bin/torchrun
printf '#!/bin/sh\necho "WORLD_SIZE=$WORLD_SIZE RANK=$RANK $*"\n' >bin/python
chmod +x bin/*
PATH=$PWD/bin:$PATH MOCK_DATA=1 run/run.sh --save ckpt >passed || fail "run.sh does not run"
grep -q -- "--nproc_per_node 8 --nnodes 16 --node_rank 0 .* --num-layers 80 .*--mock-data .*--save ckpt$" passed ||
  fail "run.sh passes on: $(cat passed)"
PATH=$PWD/bin:$PATH run/validate.sh --fake-process-group 5 >passed || fail "validate.sh does not run"
grep -q "^WORLD_SIZE=128 RANK=5 .*--train-iters 10 --fake-process-group$" passed || fail "validate.sh: $(cat passed)"
PATH=$PWD/bin:$PATH run/run.sh >/dev/null 2>missing && fail "run.sh trains without data"
grep -q "DATA_PATH" missing || fail "run.sh does not name DATA_PATH: $(cat missing)"

# --- read wherever a plan may stand, as the stack runs it
# priced PLAN ...: what simulate prints; which settings are stated aside, since a script states all
priced() { "$meshplan" simulate "$@" | grep -v "^stack  \|^assumed  "; }
priced plan.json >ours
grep -q "^software megatron-core" ours || fail "a plan forgot its stack: $(cat ours)"
priced run/run.sh --cluster dgx-h100 >theirs 2>ignored || fail "simulate run.sh"
cmp -s ours theirs || fail "the script is priced otherwise: $(diff ours theirs)"
grep -q "^ignored  .*, --log-throughput, " ignored || fail "ignored flags are not listed"
expect 0 "priced   as runs of megatron-core" import run/run.sh --cluster dgx-h100 --out back.json
priced back.json >theirs || fail "simulate back.json"
cmp -s ours theirs || fail "the imported plan is priced otherwise: $(diff ours theirs)"
expect 2 "the plan holds no cluster; name one with --cluster" simulate run/run.sh
expect 2 "zero stage 1: " simulate run/run.sh --cluster dgx-h100 --software megatron-2022
expect 0 "set      workload.seq_len: 8192 -> 4096" simulate run/run.sh --cluster dgx-h100 --set workload.seq_len=4096
expect 2 "run/run.sh says that itself" simulate run/run.sh --cluster dgx-h100 --tp 4
expect 0 "recipe.py" export run/run.sh --to megatron-bridge --out bridge
expect 0 "job.sbatch" export plan.json --to slurm --launch megatron --out job
bash -n job/job.sbatch || fail "job.sbatch has syntax errors"
expect 0 "job.yaml" export plan.json --to kubernetes --out cluster
expect 2 "plan.json: is a plan already" import plan.json

# --- judged by the rules of its stack, with the settings that it gives
expect 0 "target   Megatron-LM" check run/run.sh --cluster dgx-h100
sed 's/--overlap-grad-reduce//; s/--seq-length 8192/--seq-length 8190/' run/run.sh >wrong.sh
expect 2 "M8s  seq(8190) % (cp(1) * tp(4)) == 0 must hold" check wrong.sh
expect 2 "M20  overlap_grad_reduce(0)" check wrong.sh

# --- scripts that leave something open
sed 's/^NNODES=16$/NNODES=$SLURM_NNODES/' run/run.sh >open.sh
expect 2 "the number of GPUs is not known (SLURM_NNODES is not set); give it with --gpus" import open.sh
expect 0 "128 ranks" import open.sh --env SLURM_NNODES=16
expect 0 "256 ranks" import open.sh --gpus 256
expect 2 "expected NAME=VALUE" import open.sh --env SLURM_NNODES
printf 'source ./open.sh\n' >outer.sh
expect 0 "128 ranks" import --from megatron outer.sh --env SLURM_NNODES=16
expect 2 "open.sh:" import open.sh --gpus 100
# --- arguments, sourced files at paths, and a command line that a page gives
mkdir -p pai/conf
sed 's/^NNODES=16$/SIZE=$1; TP=$2; source "$(dirname $0)\/conf\/$SIZE.sh"/' run/run.sh >pai/args.sh
printf 'NNODES=16\n' >pai/conf/7B.sh
expect 0 "128 ranks" import pai/args.sh --args "7B 4"
expect 2 "stands outside of quotes" import pai/args.sh --args "7B; 4"
sed -i 's/--tensor-model-parallel-size 4/--tensor-model-parallel-size $TP/' pai/args.sh
expect 2 "settings depend on what is not given: TP (\$2) for --tensor-model-parallel-size; for example: meshplan import pai/args.sh --gpus 128 --args" \
  import pai/args.sh --gpus 128
printf '```\nbash args.sh 7B 4\n```\n' >pai/README.md
expect 0 "arguments: 7B 4 (as README.md:2 has it); others with --args" import pai/args.sh
printf 'hello\n' >text.txt
expect 2 "is neither a plan nor a configuration that is recognized; say what it is with --from" simulate text.txt
expect 2 "--from slurm: is written only; read are" import --from slurm run/run.sh
expect 2 "no such file" import nothing.sh
expect 0 '"software": "megatron-core"' import run/run.sh --json

finish
