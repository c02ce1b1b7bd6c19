# second: what a later loan is for; to be sourced.
run_second() {
  begin_run second 590 "$1"
  local model tool cases
  group loop 220
  if [ "$num_gpus" -gt 0 ] || [ "$DEVICE" = cpu ]; then
    loop 110 "--micro-batch 1" "--micro-batch 2" "--micro-batch 4" "--micro-batch 8" \
      "--micro-batch 8 --recompute selective" "--micro-batch 8 --recompute full"
  else
    skip loop "$no_gpu_reason"
  fi
  group torch 180
  for model in $(models_timed); do anywhere "${model}_any_order" 30 ours "$model" no-deterministic; done
  anywhere torch_eager 40 theirs eager $(models_of_torch)
  on_gpu torch_compile 120 theirs compile $(models_timed)
  group benches 40
  for model in gemm grouped_gemm memory; do on_gpu "${model}_bench" 30 bench $model; done
  group profile 60
  on_gpu slowest_kernels 60 slowest_kernels llama3.2-1b
  group others 40
  on_gpu fp8 20 ours llama3.2-1b no-deterministic fp8
  on_gpu mixture 20 ours mixture no-deterministic
  group sanitizers 50
  for tool in memcheck racecheck; do
    for cases in attention cross_entropy optimizer grouped; do on_gpu "${tool}_$cases" 20 sanitize $tool "[$cases]"; done
  done
}
