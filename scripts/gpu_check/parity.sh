# parity: the GPU computes what the CPU computes, the same every time, alone and with several ranks; to be sourced.

# Losses of ten steps beside fp32 on one CPU rank.
fp32_losses() { # fp32_losses MODEL: the same sums in another order
  plan_of "$1.fp32" "$1" fp32 1
  train "$1.cpu" "$1.fp32" 1 --device cpu
  train "$1.gpu" "$1.fp32" 1 --device cuda
  "$PYTHON" "$sheet/losses.py" within 1e-4 "$results/$1".{cpu,gpu}.run.json
}

bf16_losses() { # bf16_losses MODEL: after fp32_losses; a CPU's bf16 is off by 4e-4
  plan_of "$1.bf16" "$1" bf16 1
  train "$1.gpu_bf16" "$1.bf16" 1 --device cuda
  "$PYTHON" "$sheet/losses.py" within 1e-2 "$results/$1".{cpu,gpu_bf16}.run.json
}

twenty_times() {
  plan_of repeat tiny-llama bf16 1
  local i
  for i in $(seq 20); do train "repeat$i" repeat 1 --device cuda; done
  "$PYTHON" "$sheet/losses.py" same "$results"/repeat*.run.json
}

# together NAME RANKS FLAGS COMM...: a plan of several ranks on the GPUs beside the same on CPU ranks
together() {
  local name=$1 ranks=$2 flags=$3
  shift 3
  # shellcheck disable=SC2086
  plan_of "$name" tiny-llama fp32 "$ranks" $flags
  train "$name.cpu" "$name" "$ranks" --device cpu
  train "$name.gpu" "$name" "$ranks" --device cuda "$@"
  "$PYTHON" "$sheet/losses.py" within 1e-4 "$results/$name".{cpu,gpu}.run.json
}

sanitize() { # sanitize TOOL CASES
  command -v compute-sanitizer >/dev/null || { echo "skipped: no compute-sanitizer"; return 77; }
  compute-sanitizer --tool "$1" --error-exitcode 9 "$programs/tests/test_kernels_cuda" "$2"
}

stage_parity() {
  local model ranks tool
  for model in tiny-llama tiny-gpt2 tiny-moe; do
    step "losses_$model" 60 fp32_losses "$model"
    step "losses_${model}_bf16" 60 bf16_losses "$model"
  done
  step cudnn_and_own_attention 60 "$programs/bench/cuda/cuda_attention_bench" --check
  step twenty_times 120 twenty_times
  # Ranks that share a GPU: by the host (MPI), then by NCCL (docs/gpu_check.md, "Several ranks on one GPU").
  for ranks in 1 2 4; do
    step "runtime_tests_np$ranks" 90 mpiexec -launcher fork -n "$ranks" "$programs/tests/cuda_mpi_test"
  done
  step tp2_by_mpi 60 together tp2_by_mpi 2 "--tp 2" --comm mpi
  step pp2_by_mpi 60 together pp2_by_mpi 2 "--pp 2" --comm mpi
  step dp2_by_shared_nccl 60 together dp2_by_shared_nccl 2 "--dp 2" --comm nccl --share-gpu
  step tp2_by_shared_nccl 60 together tp2_by_shared_nccl 2 "--tp 2" --comm nccl --share-gpu
  [ "$num_gpus" -lt 2 ] || step dp2_by_nccl 60 together dp2_by_nccl 2 "--dp 2" --comm nccl
  for tool in memcheck racecheck; do step "sanitizer_$tool" 90 sanitize "$tool" "[layer_norm],[router]"; done
}
