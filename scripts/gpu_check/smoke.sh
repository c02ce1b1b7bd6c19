# smoke: one tiny bf16 training run, with and without CUDA graphs; also what other stages train with. To be sourced.

# plan_of NAME MODEL PRECISION RANKS FLAGS...: writes $results/NAME.plan.json
plan_of() {
  local name=$1 model=$2 precision=$3 ranks=$4
  shift 4
  "$meshplan" simulate --model "$model" --cluster cpu-host --ranks "$ranks" --global-batch 4 --seq-len 64 \
    --precision "$precision" "$@" --out "$results/$name.plan.json" >/dev/null
}

# train NAME PLAN RANKS OPTIONS...: runs $results/PLAN.plan.json and writes $results/NAME.run.json
train() {
  local name=$1 plan=$2 ranks=$3
  shift 3
  local launch=()
  [ "$ranks" -eq 1 ] || launch=(mpiexec -launcher fork -n "$ranks")
  echo "$plan, $ranks ranks: $*"
  "${launch[@]}" "$meshplan" run "$results/$plan.plan.json" --steps 10 --any-placement "$@" --json \
    >"$results/$name.run.json"
}

smoke_run() {
  plan_of tiny tiny-llama bf16 1
  train graphs tiny 1 --device cuda
  train no_graphs tiny 1 --device cuda --no-graphs
  "$PYTHON" "$sheet/losses.py" same "$results"/{graphs,no_graphs}.run.json
}

stage_smoke() {
  step driver 30 nvidia-smi
  step topology 30 nvidia-smi topo -m
  step versions 30 cat "$results/machine.tsv"
  step graphs_and_none 120 smoke_run
}
