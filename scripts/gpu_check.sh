#!/usr/bin/env bash
# Builds meshplan on a machine with GPUs, runs every test and benchmark that needs one, and prints one
# table. The machine needs the CUDA toolkit with cuDNN and NCCL, CMake and a C++ compiler; what else is
# missing comes from the archive of scripts/pack_dependencies.sh.
#   scripts/gpu_check.sh [--build-only] [--no-bench]
# Environment: DEPS (archive or unpacked folder; default .deps/deps.tgz), BUILD (default build/gpu),
# JOBS, OUT (where logs go; default BUILD/gpu_check).
# Ends with 0 where all that ran passed, and where there is no GPU.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_only=false
bench=true
for argument in "$@"; do
  case $argument in
    --build-only) build_only=true ;;
    --no-bench) bench=false ;;
    *) echo "gpu_check: unknown option '$argument'; known: --build-only --no-bench" >&2; exit 2 ;;
  esac
done
build=${BUILD:-$root/build/gpu}
deps=${DEPS:-$root/.deps/deps.tgz}
out=${OUT:-$build/gpu_check}
jobs=${JOBS:-$(nproc)}

# ---------------------------------------------------------------- is there a GPU?
gpus=0
if command -v nvidia-smi >/dev/null 2>&1; then
  gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | grep -c '^[0-9]')
fi
if [ "$gpus" -eq 0 ] && ! $build_only; then
  if [ -e /dev/nvidiactl ]; then
    echo "no GPU: there is a driver, but nvidia-smi finds no device"
  else
    echo "no GPU: this machine has no NVIDIA driver (--build-only builds all the same)"
  fi
  exit 0
fi
mkdir -p "$out"

# ---------------------------------------------------------------- dependencies
options=(-DCMAKE_BUILD_TYPE=Release -DMESHPLAN_CUDA=ON)
has_header() { echo "#include <$1>" | c++ -E -x c++ - >/dev/null 2>&1; }
mpiexec=$(command -v mpiexec || true)
has_catch() { has_header catch2/catch.hpp || has_header catch2/catch_all.hpp; }  # version 2 or 3
if [ -n "${DEPS:-}" ] || ! has_header nlohmann/json.hpp || ! has_catch || [ -z "$mpiexec" ]; then
  if [ -f "$deps" ]; then
    mkdir -p "$build" && tar -xzf "$deps" -C "$build" && deps=$build/deps
  fi
  [ -d "$deps/usr/include" ] || { echo "gpu_check: no dependencies at $deps: run scripts/pack_dependencies.sh" \
    "on a machine that has them and copy .deps/deps.tgz here" >&2; exit 2; }
  multiarch=$deps/usr/lib/x86_64-linux-gnu
  export PATH=$deps/bin:$PATH LD_LIBRARY_PATH=$deps/lib:${LD_LIBRARY_PATH:-}
  mpiexec=$deps/bin/mpiexec
  options+=("-DCMAKE_PREFIX_PATH=$deps/usr" "-DCMAKE_LIBRARY_PATH=$multiarch;$deps/lib"
            "-DCMAKE_BUILD_RPATH=$deps/lib" "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,$deps/lib"
            -DMPI_CXX_SKIP_MPICXX=ON -DMPI_ASSUME_NO_BUILTIN_MPI=ON
            "-DMPI_CXX_COMPILER=NOTFOUND" "-DMPI_CXX_HEADER_DIR=$deps/usr/include/x86_64-linux-gnu/mpich"
            -DMPI_CXX_LIB_NAMES=mpich "-DMPI_mpich_LIBRARY=$multiarch/libmpich.so"
            "-DMPIEXEC_EXECUTABLE=$mpiexec")
fi
options+=("-DMPIEXEC_PREFLAGS=-launcher;fork")  # needs no ssh
if [ "$gpus" -gt 0 ]; then
  options+=("-DCMAKE_CUDA_ARCHITECTURES=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u | sed 's/$/-real/' | paste -sd';')")
fi
command -v ninja >/dev/null && options+=(-G Ninja)

# ---------------------------------------------------------------- build
rows=()
failed=0
run() {  # run NAME COMMAND...: one row of the table, output to a file
  local name=$1 begin=$SECONDS code=0 result=passed
  shift
  "$@" >"$out/$name.log" 2>&1 || code=$?
  [ $code -eq 77 ] && result=skipped
  [ $code -ne 0 ] && [ $code -ne 77 ] && { result="FAILED ($code)"; failed=1; }
  rows+=("$(printf '%-34s %-12s %5d s' "$name" "$result" $((SECONDS - begin)))")
  echo "${rows[-1]}"
  return $code
}
print_table() {
  echo
  echo "GPUs: $gpus   logs: $out"
  printf '%s\n' "${rows[@]}"
}
run configure cmake -S "$root" -B "$build" "${options[@]}" || { tail -20 "$out/configure.log"; exit 1; }
run build cmake --build "$build" -j "$jobs" --target gpu_check_targets || { tail -40 "$out/build.log"; exit 1; }
if [ "$gpus" -eq 0 ]; then
  print_table
  echo "no GPU: built, nothing to run"
  exit 0
fi

# ---------------------------------------------------------------- tests
nvidia-smi >"$out/nvidia-smi.log" 2>&1
nvidia-smi topo -m >>"$out/nvidia-smi.log" 2>&1
export MPIEXEC_LAUNCHER=fork
cd "$build" || exit 1
run tests_gpu ctest -L gpu --output-on-failure
meshplan=$build/cli/meshplan
losses() { tr -d ' \n' <"$1" | grep -oE '"losses":\[[^]]*\]'; }
job() {  # job NAME RANKS OPTIONS...: a plan of that many ranks on the GPUs, beside one on the CPU
  local name=$1 ranks=$2 parallel=$3
  shift 3
  # shellcheck disable=SC2086
  "$meshplan" simulate --model tiny-llama --cluster cpu-host --ranks "$ranks" $parallel --global-batch 4 \
    --seq-len 64 --precision "${precision:-fp32}" --out "$out/$name.json" >/dev/null &&
    "$mpiexec" -launcher fork -n "$ranks" "$meshplan" run "$out/$name.json" --steps 5 --any-placement \
      --device cpu --json >"$out/$name.cpu.json" &&
    "$mpiexec" -launcher fork -n "$ranks" "$meshplan" run "$out/$name.json" --steps 5 --any-placement \
      --device cuda "$@" --json >"$out/$name.gpu.json" || return 1
  losses "$out/$name.cpu.json"
  losses "$out/$name.gpu.json"
}
run run_one_gpu job one 1 ""
oldest=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -n | head -1)
[ "$oldest" -lt 89 ] || precision=fp8 run run_one_gpu_fp8 job fp8 1 ""
run run_tp2_by_mpi job tp2mpi 2 "--tp 2" --comm mpi
run run_pp2_by_mpi job pp2mpi 2 "--pp 2" --comm mpi
run run_dp2_nccl_shared job dp2shared 2 "--dp 2" --comm nccl --share-gpu
for ranks in 2 4 8; do
  [ "$ranks" -le "$gpus" ] || continue
  run "run_tp${ranks}_nccl" job "tp$ranks" "$ranks" "--tp $ranks" --comm nccl
  run "run_dp${ranks}_nccl" job "dp$ranks" "$ranks" "--dp $ranks" --comm nccl
done

# ---------------------------------------------------------------- calibration
# What is planned with it is timed, so that a prediction stands beside a measurement.
calibrated() {
  "$meshplan" calibrate --device cuda --out "$out/cluster.json" &&
    "$meshplan" simulate --model llama3.2-1b --cluster "$out/cluster.json" --ranks "$gpus" --dp "$gpus" \
      --global-batch "$((2 * gpus))" --seq-len 4096 --precision bf16 --out "$out/calibrated.json"
}
run calibrate calibrated

# ---------------------------------------------------------------- benchmarks
if $bench; then
  find "$build/bench" -maxdepth 3 -type f -perm -u+x -path '*cuda*' | sort | while read -r program; do
    echo "$program"
  done >"$out/benchmarks"
  while read -r program; do run "bench_$(basename "$program")" "$program"; done <"$out/benchmarks"
fi
print_table
for log in "$out"/bench_*.log; do [ -f "$log" ] && { echo; echo "== $(basename "$log" .log)"; cat "$log"; }; done
exit $failed
