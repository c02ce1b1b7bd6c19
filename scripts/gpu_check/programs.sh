# Programs that check themselves; to be sourced.

# What compute-sanitizer shall watch runs by this; empty: as it is.
wrap=

# Every library that the programs load is there. Without a GPU each is started as well, and says so.
load_programs() {
  local file missing code=0
  while read -r file; do
    if missing=$(ldd "$file" 2>&1 | grep 'not found'); then
      echo "${file#"$programs/"} lacks: $missing"
      code=1
    fi
  done < <(find "$programs"/{cli,tests,bench/cuda} -maxdepth 1 -type f -executable | sort)
  [ $code -eq 0 ] || return 1
  cat "$results/machine.tsv"
  "$meshplan" --version
  [ "$num_gpus" -gt 0 ] || start_programs
}

# start_programs: up to "no GPU"
start_programs() {
  local file said code
  for file in tests/{test_kernels_cuda,cuda_mpi_test} bench/cuda/cuda_{attention,gemm,grouped_gemm,memory}_bench; do
    code=0
    said=$("$programs/$file" 2>&1) || code=$?
    [ $code -eq 77 ] && grep -q "no GPU" <<<"$said" || { echo "$file: exit code $code: $said"; return 1; }
  done
  plan_of load tiny-llama fp32 1
  said=$("$programs/cli/meshplan-cuda" run "$results/load.plan.json" --steps 1 --device cuda --any-placement 2>&1) &&
    { echo "meshplan run --device cuda: ran without a GPU"; return 1; }
  grep -q "no GPU" <<<"$said" || { echo "meshplan run --device cuda: $said"; return 1; }
  said=$(mpiexec -launcher fork -n 2 "$programs/tests/cuda_mpi_test") || [ $? -eq 77 ] || { echo "mpiexec: $said"; return 1; }
  echo "every program starts, and says that there is no GPU"
}

kernel_tests() { $wrap "$programs/tests/test_kernels_cuda" "$@"; }
library_tests() { $wrap "$programs/tests/test_cuda_libraries"; }
rank_tests() { mpiexec -launcher fork -n "$1" $wrap "$programs/tests/cuda_mpi_test"; }
attention_check() { $wrap "$programs/bench/cuda/cuda_attention_bench" --check; }
bench() { "$programs/bench/cuda/cuda_$1_bench" "${@:2}"; }
