#!/usr/bin/env bash
# What scripts rely on: exit codes, messages and files of the command given as $1.
set -u
meshplan=$1
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# expect CODE PATTERN ARGUMENTS...: of meshplan; a fixed string in its output
expect() { check_output -F "$1" "$2" "$meshplan" "${@:3}"; }

small=(--cluster cpu-host --gpus 4 --global-batch 16 --seq-len 128)

# --- help and versions
expect 0 "Exit codes: 0 done" --help
expect 0 "meshplan 0." --version
for command in plan simulate check rules mesh schedule models clusters; do
  expect 0 "Examples:" "$command" --help
done
expect 2 "unknown command 'plann'; did you mean 'plan'?" plann
expect 2 "unknown option '--modle'; did you mean '--model'?" plan --modle x
expect 2 "Could not convert" plan --gpus eight

# --- plan
expect 0 "why #1" plan --model tiny-llama "${small[@]}" --out plan.json
grep -q '"schema_version": 1' plan.json || fail "plan.json was not written"
[ -z "$(ls ./*.tmp 2>/dev/null)" ] || fail "a temporary file was left"
expect 0 '"feasible": true' plan --model tiny-llama "${small[@]}" --json --threads 1
"$meshplan" plan --model tiny-llama "${small[@]}" --json --threads 3 >three.json
cmp -s stdout three.json || fail "the number of threads changes the result"
expect 0 "tp2 pp2" plan --model tiny-llama "${small[@]}" --tp 2 --pp 2 --no-sp --micro-batch 1

# --- whether a run repeats bit for bit
expect 0 "step time" plan --model tiny-llama "${small[@]}" --no-deterministic --out any_order.json
grep -q '"deterministic": false' any_order.json || fail "the plan lacks --no-deterministic"
grep -q '"deterministic": true' plan.json || fail "plans are deterministic unless they say otherwise"
expect 0 ", not deterministic" simulate any_order.json
expect 2 "--set deterministic=true" simulate any_order.json --deterministic

# --- replicas with unequal shares of the batch
expect 2 "nearest: 15; or uneven_batch (--uneven-batch): 3 replicas take 6, 5 and 5 sequences" simulate \
  --model tiny-llama --cluster cpu-host --gpus 3 --global-batch 16 --seq-len 128 --dp 3
expect 0 "6 micro-batches, 2 of 18 sequences empty" simulate --model tiny-llama --cluster cpu-host --gpus 3 \
  --global-batch 16 --seq-len 128 --dp 3 --uneven-batch --out uneven.json
grep -q '"uneven_batch": true' uneven.json || fail "the plan lacks --uneven-batch"
expect 2 "nearest: 15" simulate uneven.json --set uneven_batch=false
expect 0 "2 of 18 sequences empty" simulate uneven.json --set micro_batch_size=3
expect 2 "nearest: micro_batch_size 7" simulate uneven.json --set micro_batch_size=8
expect 2 "--set uneven_batch=true" simulate uneven.json --uneven-batch
expect 0 "dp3" plan --model tiny-llama --cluster cpu-host --gpus 3 --global-batch 16 --seq-len 128 --uneven-batch
expect 2 "uneven_batch is of meshplan's own program" simulate --model llama3-8b --cluster dgx-h100 --gpus 8 \
  --global-batch 12 --seq-len 4096 --uneven-batch --software megatron-core

# --- ranks that compute more slowly
deep=(--model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 32 --seq-len 2048)
expect 0 "rank 5 computes 2 x as long" plan "${deep[@]}" --tp 2 --pp 4 --schedule 1f1b --slow-rank 5:2 \
  --out slow.json
expect 0 "rank 5 computes 2 x as long" simulate slow.json
expect 0 "rank 1 computes 1.5 x as long" simulate slow.json --slow-rank 1:1.5
python3 - <<'PY' || fail "the slow rank's stage has no fewer layers than others"
import json
plan = json.load(open("slow.json"))
assert plan["cluster"]["slow_ranks"] == [{"rank": 5, "times": 2.0}], plan["cluster"]["slow_ranks"]
layers = plan["layers_per_stage"]
assert sum(layers) == 32 and len(layers) == 4 and layers[2] < min(layers[:2] + layers[3:]), layers
PY
expect 2 "--slow-rank 3: expected RANK:TIMES" simulate slow.json --slow-rank 3
expect 2 "--slow-rank 3:0.5: expected RANK:TIMES" simulate slow.json --slow-rank 3:0.5
expect 2 "--slow-rank 3:2: rank 3 is given twice" simulate slow.json --slow-rank 3:1.5 --slow-rank 3:2
expect 2 "got 8, but the 8 ranks are numbered 0 to 7" simulate slow.json --slow-rank 8:2
expect 2 "has slow ranks, with which runs of software 'megatron-core' are not predicted" \
  simulate "${deep[@]}" --slow-rank 0:2 --software megatron-core

# --- settings of the optimizer
expect 0 "--learning-rate" plan --help
expect 0 "step time" plan --model tiny-llama "${small[@]}" --lr 1e-3 --warmup-steps 10 --decay-steps 90 \
  --beta2 0.999 --clip-norm 0 --out trained.json
for setting in '"learning_rate": 0.001' '"warmup_steps": 10' '"decay_steps": 90' '"beta2": 0.999' '"clip_norm": 0'; do
  grep -q "$setting" trained.json || fail "the plan lacks $setting"
done
expect 2 "nearest: 0.99999994" plan --model tiny-llama "${small[@]}" --beta1 1
expect 2 "nearest: 1e-30" plan --model tiny-llama "${small[@]}" --learning-rate 0
expect 2 "nearest: 11" plan --model tiny-llama "${small[@]}" --warmup-steps 10 --decay-steps 5
expect 2 "the optimizer is adamw, which has none" plan --model tiny-llama "${small[@]}" --momentum 0.5
expect 0 "step time" plan --model tiny-llama "${small[@]}" --optimizer sgd --momentum 0.5 --out sgd.json
grep -q '"momentum": 0.5' sgd.json || fail "the plan lacks the momentum"
expect 2 "--set workload.optimizer.beta1=0.5" simulate trained.json --beta1 0.5
sed 's/"beta2": 0.999/"beta2": 1.0/' trained.json >beta.json
expect 2 "workload.optimizer.beta2: expected a number of at most 0.99999994" simulate beta.json
expect 2 "must be 0 or above warmup_steps (10)" simulate trained.json --set workload.optimizer.decay_steps=10

# --- FP8
expect 0 "FP8" plan --help
expect 0 ", fp8, adamw" plan --model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8 --seq-len 4096 \
  --tp 4 --precision fp8 --out fp8.json
grep -q '"precision": "fp8"' fp8.json || fail "the precision is not in the plan"
expect 0 "step time" simulate fp8.json
expect 2 "has no matrix units for FP8" plan --model llama3-8b --cluster dgx-a100 --gpus 8 --global-batch 8 \
  --seq-len 4096 --precision fp8
expect 2 "nearest seq_len: 112" simulate --model tiny-llama --cluster cpu-host --gpus 1 --global-batch 4 \
  --seq-len 100 --precision fp8

# --- imported clusters
printf 'topology: [ Switch, Ring ]\nnpus_count: [ 8, 4 ]\nbandwidth: [ 200, 25 ]\nlatency: [ 500, 2000 ]\n' >net.yml
expect 0 "assumed  device" clusters import astra-sim net.yml --out imported.json
expect 0 "astra-sim" clusters imported.json
expect 0 "step time" simulate --model llama3-8b --cluster imported.json --tp 8 --dp 4 --global-batch 8 --seq-len 1024
expect 2 "unknown format 'astra'" clusters import astra net.yml
expect 2 "usage: meshplan clusters import FORMAT FILE" clusters import

# --- nodes of several types
expect 0 "16 x H100 SXM 80 GB + 8 x A100 SXM 80 GB" clusters dgx-h100:2+dgx-a100:1
expect 0 "layers per stage" plan --model llama3-8b --cluster dgx-h100:1+dgx-a100:1 --global-batch 64 \
  --tp 8 --pp 2 --out mixed.json
expect 0 "a100:1" simulate mixed.json  # in the order of nodes that the search found best
expect 2 "expected a number of nodes behind the colon" clusters dgx-h100:x+dgx-a100
expect 2 "unknown cluster ''" clusters dgx-h100+
expect 2 "devices of a node differ, 8 and 4" clusters dgx-h100+gb200-nvl72
expect 2 "say how many nodes of each type" plan --model llama3-8b --cluster dgx-h100:1+dgx-a100:1 \
  --gpus 8 --global-batch 64

# --- schedules
expect 0 "bubble" schedule --schedule zb-v --pp 2 --microbatches 4 --csv v.csv
expect 0 "2 stages, 2 chunks a rank, 4 micro-batches" schedule v.csv
expect 0 "step time" simulate --model tiny-llama --cluster cpu-host --global-batch 4 --seq-len 128 \
  --dp 1 --schedule-file v.csv --out custom.json
grep -q '"schedule": "custom"' custom.json || fail "the schedule is not in the plan"
expect 0 "step time" simulate custom.json
expect 0 "step time" simulate --model tiny-llama --cluster cpu-host --global-batch 4 --seq-len 128 \
  --pp 2 --vpp 2
echo "0F0,0Z0" >bad.csv
expect 2 "bad.csv: line 1, cell 2: '0Z0'" schedule bad.csv
printf '0F0,0B0\n1B0,1F0\n' >stuck.csv
expect 2 "waits forever" schedule stuck.csv
expect 2 "use --vpp 2" schedule --schedule dualpipe-v --vpp 3
expect 2 "did you mean 'zb-v'" schedule --schedule zbv
expect 2 "exclude each other" schedule v.csv --schedule zb-v
expect 2 "in v.csv has pp = 2; use --pp 2" simulate --model tiny-llama "${small[@]}" --pp 4 \
  --schedule-file v.csv
expect 2 "schedule '1f1b' has 1 chunk a rank" simulate --model tiny-llama "${small[@]}" --pp 2 \
  --vpp 2 --dp 2 --schedule 1f1b

# --- bad input
expect 2 "did you mean 'llama3-70b'?" plan --model llama3-70B "${small[@]}"
expect 2 "did you mean 'dgx-h100', " plan --model tiny-llama --cluster dgxh100 --global-batch 8
expect 2 "unknown value 'ful'; did you mean 'full'?" plan --model tiny-llama "${small[@]}" \
  --recompute ful
expect 2 "--model is missing" plan
expect 2 "--global-batch is missing" plan --model tiny-llama --cluster cpu-host
expect 2 "must be at least 1" plan --model tiny-llama --cluster cpu-host --global-batch 0
expect 2 "nearest tp: 2" plan --model tiny-llama "${small[@]}" --tp 3
expect 2 "but the cluster has 4 ranks; dp = 4 would use all" plan --model tiny-llama "${small[@]}" \
  --tp 1 --pp 1 --dp 2
for stage in 1 2 3; do
  expect 0 "step time" simulate --model tiny-llama --cluster cpu-host --dp 4 --zero "$stage" --global-batch 8 --seq-len 128
done
expect 2 "nothing; use zero_stage = 0 or dp >= 2" simulate --model tiny-llama --cluster cpu-host --zero 1 --global-batch 4
expect 2 "use compression.kind = 'none'" simulate --model tiny-llama --cluster cpu-host --compress int8 --global-batch 4
expect 0 "step time" plan --model tiny-llama "${small[@]}" --compress int8
expect 2 "nearest: '*,!head'" simulate --model tiny-llama "${small[@]}" --dp 4 --freeze '!head'
expect 0 "dp2 ep2" simulate --model tiny-moe --cluster cpu-host --dp 2 --ep 2 --global-batch 4 --seq-len 128
moe=(--model tiny-moe --cluster cpu-host --dp 2 --ep 2 --global-batch 4 --seq-len 128)
expect 0 "step time" simulate "${moe[@]}" --expert-imbalance 1.5 --out imbalanced.json
grep -q '"expected_expert_imbalance": 1.5' imbalanced.json || fail "the plan keeps the expected imbalance"
expect 0 "step time" simulate imbalanced.json
expect 2 "at most expert_imbalance (2)" simulate imbalanced.json --expert-imbalance 3
expect 2 "nearest: 1" simulate "${moe[@]}" --expert-imbalance 0.5
expect 2 "nowhere.jsonl" simulate "${moe[@]}" --expert-imbalance nowhere.jsonl
expect 2 "no experts; leave it out" plan --model tiny-llama --cluster cpu-host --gpus 2 --global-batch 4 --seq-len 128 \
  --expert-imbalance 2
expect 2 "nearest ep: 2" simulate --model tiny-moe --cluster cpu-host --dp 2 --ep 3 --global-batch 4 --seq-len 128
expect 0 "step time" simulate --model tiny-llama --cluster cpu-host --cp 2 --global-batch 4 --seq-len 128
expect 2 "num_heads (8) is not divisible by tp (3)" simulate --model tiny-llama \
  --cluster cpu-host --global-batch 16 --seq-len 128 --tp 3
expect 2 "by 'chunked' (layer_pattern) is not lowered" plan --model llama4-scout --text-only "${small[@]}"
# A pipeline of two layers a stage is priced, of layers that differ in the model.
expect 0 "nemotron-3-nano" plan --model nemotron-3-nano-30b-a3b --cluster dgx-h100 --gpus 16 \
  --global-batch 64 --seq-len 4096 --precision fp8
expect 2 "is not divisible by" plan --model tiny-llama --cluster cpu-host --gpus 4 \
  --global-batch 6 --dp 4
grep -q "model    " stdout && fail "a result was begun before bad input was found"

# --- files
expect 2 "plam.json: no such file; near it: plan.json" simulate plam.json
echo '{"schema_version": 1,' >corrupt.json
expect 2 "corrupt.json:2:1: not valid JSON" simulate corrupt.json
expect 2 "corrupt.json:2:1: not valid JSON" plan --model corrupt.json "${small[@]}"
sed 's/"micro_batch_size"/"micro_batchsize"/' plan.json >typo.json
expect 2 "micro_batchsize: unknown key; did you mean 'micro_batch_size'?" simulate typo.json
sed 's/"seq_len": 128/"seq_len": "128"/' plan.json >type.json
expect 2 'seq_len: expected' simulate type.json
"$meshplan" clusters cpu-host --json | sed 's/"num_nodes"/"num_node"/' >cluster.json
expect 2 "num_node: unknown key; did you mean 'num_nodes'?" plan --model tiny-llama \
  --cluster cluster.json --global-batch 8
expect 1 "cannot be written" plan --model tiny-llama "${small[@]}" --out missing/plan.json

expect 1 "out: cannot be written: it is a folder" plan --model tiny-llama "${small[@]}" \
  --out "$(mkdir -p out && echo out)"
for option in --trace --chrome --out --program; do
  expect 1 "missing/f.json: cannot be written: there is no folder missing" simulate plan.json \
    $option missing/f.json
done
[ -s stdout ] && fail "simulates what cannot be written"
expect 0 "step time" simulate plan.json --trace /dev/null
[ -c /dev/null ] || fail "a device was replaced by a file"

# --- simulate
expect 0 "step time" simulate plan.json --trace trace.json --chrome chrome.json
grep -q '"spans"' trace.json || fail "the trace was not written"
for key in cluster_name cluster_hash prediction step_time_s model_hash; do
  grep -q "\"$key\"" trace.json || fail "the trace's plan lacks $key"
done
grep -q 'traceEvents' chrome.json || fail "the Chrome trace was not written"
expect 0 '"fits": true' simulate plan.json --json
# --- the closed form in place of a play
cp stdout played.json
expect 0 "estimated step time" simulate plan.json --estimate
expect 0 '"estimated": true' simulate plan.json --estimate --json
python3 -c 'import json
estimated, played = json.load(open("stdout")), json.load(open("played.json"))["step_time_s"]
sum_s = sum(estimated["breakdown_s"].values())
assert abs(estimated["step_time_s"] / played - 1) < 0.15, (estimated["step_time_s"], played)
assert abs(sum_s / estimated["step_time_s"] - 1) < 1e-9 and estimated["fits"]' || fail "a wrong estimate: $(cat stdout)"
for option in "--trace t.json" "--kineto k" "--out o.json" --explain --communication --memory-timeline --timeline; do
  # shellcheck disable=SC2086
  expect 2 "${option%% *}: needs the step played" simulate plan.json --estimate $option
done
expect 2 "predicted in closed form in any case" simulate --model llama3-8b --cluster dgx-h100 --gpus 8 \
  --global-batch 8 --software megatron-core --estimate
# Whatever the file says itself is refused, not ignored, and what would change it is named.
expect 2 "leave out --model" simulate plan.json --model tiny-llama
expect 0 "set      --gpus: dp4 mbs2 zero1 -> dp8" simulate plan.json --gpus 8  # but for ranks, for which it is planned again
expect 2 "--set parallel.tp=4" simulate plan.json --tp 4
expect 2 "--set parallel.sp=false" simulate plan.json --no-sp
expect 2 "--set recompute.kind=full" simulate plan.json --recompute full
expect 0 "set      recompute.kind: " simulate plan.json --set recompute.kind=full
expect 0 "norms+mlp-recompute" simulate plan.json --set recompute.kind=selective --set recompute.modules=norms,mlp
expect 2 "did you mean 'mlp'?" simulate --model tiny-llama "${small[@]}" --recompute-modules norms,mpl
expect 2 "recompute_modules = mlp with recompute = full" \
  simulate --model tiny-llama "${small[@]}" --recompute full --recompute-modules mlp
expect 0 "set      workload.global_batch_size: 16 -> 32" simulate plan.json --set workload.global_batch_size=32
expect 0 "set      model.hidden_size: 256 -> 512" simulate plan.json --set model.hidden_size=512 \
  --set model.head_size=64
expect 2 "did you mean 'parallel.tp'?" simulate plan.json --set paralel.tp=4
expect 2 "expected PATH=VALUE" simulate plan.json --set parallel.tp
expect 2 'micro_batch_size: expected' simulate plan.json --set micro_batch_size=two
expect 2 "is not given: say the same with a flag" simulate --model tiny-llama "${small[@]}" --set parallel.tp=2
# Nothing is suggested that does not work as it stands.
expect 0 "meshplan run plan.json" plan --model tiny-llama "${small[@]}" --out plan.json
expect 0 "repeat with --out plan.json" plan --model tiny-llama "${small[@]}"
grep -q "meshplan run\|meshplan simulate" stdout && fail "next names a file that was not written"
expect 0 "pp2 dp2" simulate --model tiny-llama --cluster cpu-host --pp 2 --dp 2 --global-batch 16 \
  --seq-len 128 --out simulated.json
expect 0 "pp2 dp2" simulate simulated.json
sed 's/"dp": 2/"dp": 4/' simulated.json >mismatch.json
expect 2 "the plan has 8 ranks" simulate mismatch.json

# --- prices far beyond the sizes that were measured
tiny='{"op": "all_reduce", "group_size": 4, "ranks_on_host": 4, "seconds": 1e-6'
"$meshplan" clusters cpu-host --json |
  sed "s/\"collectives\": \[\]/\"collectives\": [$tiny, \"bytes\": 8}, $tiny, \"bytes\": 16}]/" >tiny.json
dp4=(--model tiny-llama --cluster tiny.json --dp 4 --global-batch 16 --seq-len 128)
expect 0 "all_reduce of 4 ranks  8B to 16B" simulate "${dp4[@]}" --out far.json --trace far_trace.json
expect 0 "80 % interval of the step time with them" simulate far.json
expect 0 '"measured_most": 16.0' simulate far.json --json
expect 0 "beyond the sizes that were measured" plan "${dp4[@]}" --gpus 4
expect 0 '"extrapolations"' plan "${dp4[@]}" --gpus 4 --json
sed 's/"measured": false/"measured": true/' far_trace.json >far_measured.json
expect 0 "beyond the sizes that were measured" compare far_trace.json far_measured.json
expect 0 '"extrapolations"' compare far_trace.json far_measured.json --json
expect 0 "step time" simulate plan.json
grep -q "beyond the sizes" stdout && fail "a data sheet claims no measured sizes"

# --- nothing feasible
expect 3 "nearest miss" plan --model llama3.1-405b --cluster one-h100 --global-batch 8 \
  --seq-len 1024
expect 3 '"feasible": false' plan --model llama3.1-405b --cluster one-h100 --global-batch 8 \
  --seq-len 1024 --json
expect 3 "does not fit" simulate --model llama3-70b --cluster one-h100 --global-batch 8 \
  --seq-len 1024

# --- catalogs and meshes
expect 0 "llama3-70b" models
expect 0 "  keys chosen in blocks (sparse_attention.block) is not lowered by this version" models
expect 0 "qkv" models llama3-8b
expect 0 "nemotron-3-super-120b-a12b" models nemotron-3
expect 0 '"parameters"' models llama3-8b --json
expect 0 '$schema' models --schema
expect 0 "dgx-h100" clusters
expect 0 "nvlink" clusters dgx-h100
expect 0 "BM.GPU.MI300X.8" clusters mi300x
expect 0 "p5en" clusters aws h200
expect 0 "xgmi (full mesh)" clusters 8x-mi300x
expect 0 "data sheet alone: no operator of such GPUs was timed" clusters 8x-mi300x
expect 0 "us-east-1" clusters P5.48xlarge
expect 0 '"usd_per_device_hour": 6.88' clusters p5 --json
expect 2 "unknown cluster 'h1000'; did you mean" clusters h1000
expect 2 "no cluster has all of the words 'aws', 'mi300x'" clusters aws mi300x
[ "$("$meshplan" clusters aws h200 --json | grep -c '"vendor"')" = 2 ] || fail "clusters aws h200 --json"
expect 0 "8 x H100 SXM 80 GB" plan --model tiny-llama --cluster p5.48xlarge --gpus 8 --global-batch 8 --seq-len 128
# The list price of what is rented, unless another one is given.
expect 0 "6.88 USD a device and hour (list price of h100-p5, us-east-1" plan --model tiny-llama --cluster p5 \
  --gpus 8 --global-batch 8 --seq-len 128 --tokens 1e9
"$meshplan" plan --model tiny-llama --cluster p5 --gpus 8 --global-batch 8 --seq-len 128 --tokens 1e9 \
  --price-per-gpu-hour 2 | grep -q "list price" && fail "a price that was given is not assumed"
"$meshplan" plan --model tiny-llama --cluster dgx-h100 --gpus 8 --global-batch 8 --seq-len 128 --tokens 1e9 |
  grep -q "costs" && fail "no price is public"
expect 0 '$schema' clusters --schema
expect 0 "tp2 pp4 dp2: 16 ranks" mesh --tp 2 --pp 4 --dp 2
expect 0 '"world_size": 16' mesh --tp 2 --pp 4 --dp 2 --json
expect 2 "ranks 0 to 1" mesh --tp 2 --rank 2
expect 2 "must name each of" mesh --order tp-pp

# --- a Hugging Face config, by file and by folder
mkdir llama
cat >llama/config.json <<'JSON'
{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
 "num_key_value_heads": 4, "intermediate_size": 512, "vocab_size": 256,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": false}
JSON
expect 0 "4 layers" models llama/config.json
expect 0 "why #1" plan --model llama "${small[@]}"

# --- what became of its keys, and the ways out of what cannot be trained
cat >odd.json <<'JSON'
{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
 "intermediate_size": 512, "vocab_size": 256, "max_position_embeddings": 512, "use_cache": true,
 "attention_dropout": 0.1, "rope_thetta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
JSON
expect 0 "rope_scaling.factor = 2.0" models odd.json
expect 0 "use_cache = true: of text generation" models odd.json
expect 0 "assumed  rope_thetta is left out: unknown to a llama; nearest: rope_theta" models odd.json
expect 0 "dropout 0.1 is not lowered by this version; --no-dropout" models odd.json
expect 0 '"key": "use_cache"' models odd.json --json
expect 2 "dropout 0.1 is not lowered by this version; --no-dropout" plan --model odd.json "${small[@]}"
expect 0 "dropout = 0 (--no-dropout; the model has 0.1)" plan --model odd.json --no-dropout \
  "${small[@]}"
expect 0 "assumed  rope_thetta is left out" simulate --model odd.json --no-dropout "${small[@]}"
sed 's/"llama"/"lama2"/' odd.json >unknown.json
expect 2 "use --assume llama" models unknown.json
expect 0 "model_type 'lama2' is read as 'llama'" models unknown.json --assume llama
"$meshplan" models tiny-llama --json | python3 -c 'import json, sys
spec = json.load(sys.stdin)["spec"]
spec["mtp_layers"] = 1
json.dump(spec, open("mtp.json", "w"))' || fail "no model"
expect 0 "step time" simulate --model mtp.json "${small[@]}" --tp 2 --pp 2
expect 2 "(mtp_layers) over cp > 1 is not lowered by this version; --no-mtp" simulate --model mtp.json \
  "${small[@]}" --cp 2 --pp 2
expect 0 "mtp_layers = 0 (--no-mtp; the model has 1)" plan --model mtp.json --no-mtp "${small[@]}"

# --- output that cannot be delivered
if [ -w /dev/full ]; then
  "$meshplan" models >/dev/full 2>stderr
  [ $? -eq 1 ] || fail "a full device is not reported"
fi

# --- names from files never reach the terminal raw
bad=$(printf 'evil\033]0;title\007\033[2J\302\233m\342\200\256name')
raw=$(printf '[\001-\010\013-\037\177]|\302[\200-\237]|\342\200\256')
expect_printable() {  # expect_printable ARGUMENTS...
  "$meshplan" "$@" >stdout 2>stderr
  cat stdout stderr | LC_ALL=C grep -qaE "$raw" && fail "control characters in: $* $(cat -v stdout stderr)"
  cat stdout stderr | grep -q 'evil' || fail "the name is not shown: $*"
}
"$meshplan" clusters cpu-host --json >named_cluster.json
python3 - "$bad" <<'PY'
import json, sys
cluster = json.load(open("named_cluster.json"))
json.dump(dict(cluster, name=sys.argv[1]), open("named_cluster.json", "w"))
model = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 256,
         "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
json.dump(model, open(sys.argv[1] + "_model.json", "w"))
PY
evil=(simulate --model "${bad}_model.json" --cluster named_cluster.json --gpus 4 --global-batch 16
  --seq-len 128)
expect_printable "${evil[@]}" --out evil.json
expect_printable "${evil[@]}" --json
expect_printable plan "${evil[@]:1}"
expect_printable simulate evil.json
expect_printable clusters named_cluster.json
expect_printable clusters named_cluster.json --json
expect_printable simulate "$bad.json"
expect_printable plan --model "$bad"
expect_printable "$bad"
printf '{"%s": 1}' "$bad" >key.json
expect_printable simulate key.json
sed 's/"schema_version": 1/"schema_version": 99/' plan.json >"$bad.json"
expect_printable simulate "$bad.json"

# --- plans of other training stacks
megatron="--software megatron-core --model llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 256 --seq-len 8192"
# shellcheck disable=SC2086
expect 0 "software megatron-core" plan $megatron --out megatron.json
planned=$(sed -n 's/^ 1  .*  \([0-9.]* m\{0,1\}s\)  [0-9.]* m\{0,1\}s to .*/\1/p' stdout | head -1)
[ -n "$planned" ] || fail "plan shows no time of #1: $(cat stdout)"
expect 0 "step time  $planned" simulate megatron.json --software megatron-core
expect 2 "megatron-core runs 1f1b or interleaved" simulate megatron.json --software megatron-core --set parallel.tp=1 \
  --set parallel.sp=false --set parallel.pp=8 --set parallel.dp=8 --set parallel.vpp=1 --set schedule=gpipe --set micro_batch_size=1
expect 0 "step time  $planned" simulate megatron.json --software megatron-core --out again.json
expect 0 "step time  $planned" simulate again.json --software megatron-core
expect 2 "nodes of several types" plan --software megatron-core --model llama3-8b --cluster dgx-h100:1+dgx-a100:1 \
  --global-batch 64
expect 2 "fms-fsdp-2024 has no context parallelism" simulate --software fms-fsdp-2024 --model llama3-8b \
  --cluster dgx-h100 --cp 2 --dp 8 --global-batch 16 --seq-len 8192
expect 2 "needs every operation" simulate megatron.json --software megatron-core --trace trace.json
expect 2 "did you mean 'megatron-core'" simulate megatron.json --software megatron-cor
expect 0 "step time  $planned" simulate megatron.json --software megatron-core@25.09
expect 0 "software megatron-core@25.09" explain megatron.json --software megatron-core@25.09
search=${megatron#--software megatron-core }
# shellcheck disable=SC2086
expect 0 "export released.json --to megatron" plan $search --software megatron-core@25.09 --out released.json
for command in "simulate megatron.json" "explain megatron.json" "check megatron.json" "plan $search"; do
  # shellcheck disable=SC2086
  expect 2 "expected 24.07 or later, as in 'megatron-core@24.07'" $command --software megatron-core@23.05
done
expect 2 "did you mean 'megatron-core'" check megatron.json --software megatron-cor@25.09
expect 0 "" check megatron.json --software megatron-core@25.09

finish
