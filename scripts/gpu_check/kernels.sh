# kernels: every kernel against its slow reference, then the benches; to be sourced by gpu_check.sh.

stage_kernels() {
  step libraries 60 "$programs/tests/test_cuda_libraries"
  step kernel_tests 200 "$programs/tests/test_kernels_cuda"
  local bench
  for bench in attention gemm grouped_gemm memory; do
    step "${bench}_bench" 90 "$programs/bench/cuda/cuda_${bench}_bench"
  done
}
