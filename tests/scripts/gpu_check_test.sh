#!/usr/bin/env bash
# The run sheet without a GPU, and with stand-ins for the GPU, the programs and NVIDIA's wheels.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/tests/cli/expect.sh"
sheet=$root/scripts/gpu_check.sh
# a version manager's python3 is a script, which takes ten times as long to start
PYTHON=$(python3 -c 'import sys; print(sys.executable)')
export PYTHON OUT=$work/out BUILD=$work/build DEPS=$work/none
unset PROGRAMS SITE_PACKAGES ARCHITECTURES STAGE_SECONDS MESHPLAN

row() { # row STAGE STEP RESULT: that is how the step ended, in the archive
  tar -xzOf "$OUT/gpu_check_$1.tar.gz" "$1/steps.tsv" | grep -qP "^$2\t$3\t" ||
    fail "$1: step $2 is not '$3': $(cat "$OUT/$1/steps.tsv" 2>&1)"
}
has() { # has STAGE FILE: the archive holds it
  tar -tzf "out/gpu_check_$1.tar.gz" | grep -qx "$1/$2" || fail "the archive of $1 lacks $2"
}

# --- bad words
expect 2 "no stage 'parities'; there are: build smoke kernels parity speed loop all" "$sheet" parities
expect 2 "usage" "$sheet"

# --- a machine with one GPU, and programs that do as if
mkdir -p fake programs/cli programs/tests programs/bench/cuda
cat >fake/nvidia-smi <<'SH'
#!/bin/sh
case "$*" in
  *query-gpu=index*) echo 0 ;;
  *query-gpu=name*) echo "Pretend GPU, 80000 MiB, 580.0" ;;
  *compute_cap*) echo 9.0 ;;
  *) echo "driver of a pretended GPU" ;;
esac
SH
cat >fake/mpiexec <<'SH'
#!/bin/sh
shift 4  # -launcher fork -n RANKS
exec "$@"
SH
printf '#!/bin/sh\nshift 4  # --tool TOOL --error-exitcode CODE\nexec "$@"\n' >fake/compute-sanitizer
cat >programs/cli/meshplan <<'SH'
#!/usr/bin/env bash
# Losses 3, 2. On the GPU they are off by the relative errors FP32_ERROR and BF16_ERROR, and those of a plan that OFF
# names (PLAN=ERROR ...) by its own. Runs of the plan REPEAT differ from one another; one of the plan HANG hangs.

command=$1 plan=none
while [ $# -gt 0 ]; do
  case $1 in
    --out | --markdown | --trace) for file in "$2"; do echo "$command $*" >"$file"; done ;;
    --device) device=$2 ;;
    *.plan.json) plan=${1##*/} ;;
  esac
  shift
done
[ "$command" = run ] || { echo "$command done"; exit 0; }
[ "${HANG:-}" != "$plan" ] || { trap '' TERM; echo hangs; while :; do sleep 1; done; }
error=0
if [ "${device:-}" = cuda ]; then
  case $plan in *.bf16.*) error=${BF16_ERROR:-0} ;; *) error=${FP32_ERROR:-0} ;; esac
  case " ${OFF:-} " in *" $plan="*) error=${OFF##*"$plan="} error=${error%% *} ;; esac
fi
[ "${REPEAT:-}" != "$plan" ] || error=0.$RANDOM
awk -v e="$error" 'BEGIN {printf "{\"tokens_per_s\": 1234.5, \"losses\": [%.9f, %.9f]}\n", 3 * (1 + e), 2 * (1 + e)}'
SH
printf '#!/bin/sh\necho "%s $*"\n' passed >programs/tests/test_kernels_cuda
chmod +x fake/* programs/cli/meshplan programs/tests/test_kernels_cuda
for program in tests/test_cuda_libraries tests/cuda_mpi_test bench/cuda/cuda_{attention,gemm,grouped_gemm,memory}_bench; do
  cp programs/tests/test_kernels_cuda "programs/$program"
done
mkdir -p build_stage/build && cp -r programs build_stage/build/programs
cp build_stage/build/programs/{tests/cuda_mpi_test,cli/meshplan-cuda}
tar -czf programs.tar.gz -C build_stage build

# --- without a GPU every stage says so, ends with 0 and leaves its archive
mkdir bare && for program in bash awk cat chmod column cp cut date dirname du env grep head ldd ls mkdir mv nproc \
  python3 readlink rm sed seq sleep sort strip tail tar timeout touch tr uniq wc xargs gzip git; do
  ln -s "$(command -v $program)" "bare/$program"
done
expect 0 "no GPU: this machine has no NVIDIA driver; smoke skipped" env PATH="$work/bare" \
  PROGRAMS="$work/programs.tar.gz" "$sheet" all
for stage in smoke kernels parity speed loop; do
  grep -q "$stage: nothing failed" stdout || fail "$stage without a GPU: $(cat stdout)"
  row $stage $stage skipped
  has $stage machine.tsv
done
printf '#!/bin/sh\nexit 9\n' >bare/nvidia-smi && chmod +x bare/nvidia-smi
expect 0 "no GPU: there is a driver, but nvidia-smi finds no device; smoke skipped" env PATH="$work/bare" "$sheet" smoke

# From here on no stage asks Python and nvcc where NVIDIA's libraries are, which takes longer than the stand-ins.
export PROGRAMS=$work/programs SITE_PACKAGES=$work/none PATH=$work/fake:$PATH

# --- what hangs and ignores SIGTERM is ended, and the archive is there all the same; meanwhile the others
mkdir hang
env OUT="$work/hang/out" BUILD="$work/hang/build" HANG=tiny.plan.json STAGE_SECONDS=10 "$sheet" smoke \
  >hang/stdout 2>hang/stderr &
hanging=$!

# --- every stage passes; programs may come from the archive of a build stage
printf '#!/bin/sh\ncase "$*" in *torch*) exit 1 ;; esac\nexec "%s" "$@"\n' "$PYTHON" >fake/no_torch && chmod +x fake/no_torch
expect 0 "loop: nothing failed" env PROGRAMS="$work/programs.tar.gz" PYTHON="$work/fake/no_torch" FP32_ERROR=9e-5 \
  BF16_ERROR=9e-3 "$sheet" all
[ "$(grep -c "^[a-z]*: nothing failed" stdout)" -eq 6 ] || fail "not six stages that pass: $(cat stdout)"
row build load passed
row smoke graphs_and_none passed
has smoke no_graphs.run.json
grep -q "GPU	1 x Pretend GPU, 80000 MiB, 580.0" out/smoke/machine.tsv || fail "the GPU is not described"
for step in libraries kernel_tests attention_bench gemm_bench grouped_gemm_bench memory_bench; do row kernels $step passed; done
# just within the bounds of parity
for step in losses_tiny-llama losses_tiny-gpt2_bf16 twenty_times cudnn_and_own_attention tp2_by_mpi pp2_by_mpi \
  dp2_by_shared_nccl sanitizer_memcheck; do
  row parity $step passed
done
has parity repeat20.run.json
row speed gpt2-124m passed
row speed gpt2-124m_pytorch skipped
grep -q "llama3.2-1b	meshplan	1234" out/speed/speed.tsv || fail "no speed of Llama: $(cat out/speed/speed.tsv)"
for step in calibrate plan simulate run compare; do row loop $step passed; done
[ "$(tar -tzf out/gpu_check_loop.tar.gz | grep -c '^loop/plans/.*json')" -eq 6 ] || fail "not six plans in the loop"

# --- what fails is named, and fails neither the next step nor the next stage; just beyond the bounds of parity
printf '#!/bin/sh\necho "3 cases failed"; exit 3\n' >programs/tests/test_kernels_cuda
expect 1 "loop: nothing failed" env PROGRAMS="$work/programs" PYTHON="$work/fake/no_torch" REPEAT=tiny.plan.json \
  OFF="tiny-llama.fp32.plan.json=1.1e-4 tiny-gpt2.bf16.plan.json=1.1e-2" "$sheet" all
for words in "2 runs, 1 with other losses" "kernel_tests: exit code 3: 3 cases failed" "1.10e-04, bound 1e-04" \
  "1.10e-02, bound 1e-02"; do
  grep -qF "$words" stdout || fail "all: no '$words': $(cat stdout)"
done
row smoke graphs_and_none FAILED
row kernels kernel_tests FAILED
row kernels memory_bench passed
row parity losses_tiny-llama FAILED
row parity losses_tiny-gpt2 passed
row parity losses_tiny-gpt2_bf16 FAILED
row parity losses_tiny-moe_bf16 passed
row parity twenty_times passed
row parity tp2_by_mpi passed

# --- the page is made of the archives
python3 "$root/scripts/gpu_check/report.py" out/*.tar.gz >page.md || fail "report.py"
for words in "1 x Pretend GPU" "| gpt2-124m | meshplan | 1,234 |" "losses_tiny-gpt2" "FAILED"; do
  grep -qF "$words" page.md || fail "the page lacks '$words': $(cat page.md)"
done
mkdir -p indexed/reports/results && cp page.md indexed/reports/results/gpu.md
python3 "$root/scripts/results_index.py" --root indexed || fail "the page's header"
grep -q "(gpu.md) .* 1 x Pretend GPU" indexed/reports/results/README.md || fail "$(cat indexed/reports/results/README.md)"
expect 2 "nothing.tar.gz: No such file|cannot be read" python3 "$root/scripts/gpu_check/report.py" nothing.tar.gz

# --- time that is over
expect 1 "not run: the stage's time is over" env STAGE_SECONDS=0 "$sheet" smoke
wait $hanging
code=$?
[ $code -eq 1 ] || fail "a stage that hangs: exit code $code instead of 1: $(cat hang/stdout hang/stderr)"
grep -q "graphs_and_none: ended by its time limit" hang/stderr || fail "a stage that hangs: $(cat hang/stdout hang/stderr)"
OUT=hang/out row smoke graphs_and_none FAILED
[ -z "$(ranks)" ] || fail "left over: $(ranks)"
unset PROGRAMS

# --- a build is configured with wheels that have no plain .so names
PATH=${PATH#*:}
source "$root/scripts/gpu_check/machine.sh"
if [ -z "$nvcc" ]; then
  echo "not tested: wheels, for there is no nvcc"
  finish
fi
printf '#!/bin/sh\nexec "%s" "$@"\n' "$nvcc" >fake/nvcc && chmod +x fake/nvcc  # a wrapper, as conda's
toolkit=$(nvcc=$work/fake/nvcc toolkit)
for pair in cudnn:cudnn nccl:nccl cublasLt:cu13 cudart:cu13; do
  library=${pair%:*} wheel=wheels/nvidia/${pair#*:}
  mkdir -p "$wheel/lib" "$wheel/include"
  for file in "$toolkit"/lib{64,}/lib"$library"*.so.*; do [ ! -e "$file" ] || ln -sf "$file" "$wheel/lib/"; done
  for file in "$toolkit/include/${library%Lt}"*.h; do [ ! -e "$file" ] || ln -sf "$file" "$wheel/include/"; done
done
for library in cudnn nccl cu13; do
  [ -n "$(ls "wheels/nvidia/$library/lib")" ] || fail "no libraries for the stand-in of the wheel $library in '$toolkit'"
done
expect 0 "nothing failed" env SITE_PACKAGES="$work/wheels" TARGETS= "$sheet" build
for name in cudnn nccl cublasLt; do
  grep -q "^${name}_LIBRARY:FILEPATH=$work/build/nvidia/lib/lib$name.so\$" build/CMakeCache.txt ||
    fail "$name is not the wheel's: $(grep "^${name}_" build/CMakeCache.txt)"
  grep -q "^${name}_INCLUDE_DIR:PATH=$work/build/nvidia/include\$" build/CMakeCache.txt ||
    fail "$name's header is not the wheel's: $(grep "^${name}_" build/CMakeCache.txt)"
done
grep -q 'MESHPLAN_WERROR:.*=OFF' build/CMakeCache.txt || fail "warnings of a newer compiler are errors"
finish
