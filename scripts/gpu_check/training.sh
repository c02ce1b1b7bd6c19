# Training runs on one GPU, beside themselves, one CPU rank and PyTorch; to be sourced.

# plan_of NAME MODEL PRECISION RANKS FLAGS...: writes $results/NAME.plan.json
plan_of() {
  local name=$1 model=$2 precision=$3 ranks=$4
  shift 4
  "$meshplan" simulate --model "$model" --cluster cpu-host --ranks "$ranks" --global-batch 4 --seq-len 64 \
    --precision "$precision" "$@" --out "$results/$name.plan.json" >/dev/null
}

# train NAME PLAN OPTIONS...: ten steps of $results/PLAN.plan.json on one rank, into $results/NAME.run.json
train() {
  local name=$1 plan=$2
  shift 2
  echo "$plan: $*"
  $wrap "$meshplan" run "$results/$plan.plan.json" --steps 10 --any-placement --device "$DEVICE" "$@" --json \
    >"$results/$name.run.json"
}

# The same bits with CUDA graphs and without.
graphs_and_none() {
  plan_of tiny tiny-llama bf16 1
  train graphs tiny
  train no_graphs tiny --no-graphs
  "$PYTHON" "$sheet/losses.py" "$results"/{graphs,no_graphs}.run.json
}

twenty_times() { # twenty_times MODEL: the same bits, run after run
  plan_of repeat "$1" bf16 1
  local i
  for i in $(seq 20); do train "repeat$i" repeat; done
  "$PYTHON" "$sheet/losses.py" "$results"/repeat*.run.json
}

# has_torch: 77, with the reason, where PyTorch cannot compute on $DEVICE
has_torch() {
  "$PYTHON" -c "import torch; assert '$DEVICE' == 'cpu' or torch.cuda.is_available(); print('PyTorch', torch.__version__)" 2>/dev/null ||
    { echo "skipped: $PYTHON has no PyTorch for $DEVICE"; return 77; }
}

# Families of models in fp32 beside PyTorch on the same device, from the same weights.
families() {
  has_torch || return
  "$PYTHON" "$root/tests/reference_python/compare_training.py" "$meshplan" --device "$DEVICE" "$@"
}

# GPT-2 in bf16 for 20 steps beside PyTorch's: gradient norms and losses, step by step.
bf16_beside_torch() {
  has_torch || return
  "$PYTHON" "$root/tests/reference_python/compare_bf16.py" "$meshplan" --device "$DEVICE" "$@"
}

# Gradients by tensor of one rank on the GPU beside one on processor cores.
certify_one() { # certify_one MODEL PRECISION
  local name=certify_$1.$2
  plan_of "$name" "$1" "$2" 1
  $wrap "$meshplan" certify "$results/$name.plan.json" --device "$DEVICE" --out "$results/$name.certificate.json" \
    $([ "$2" = fp32 ] || echo --own-precision)
}
