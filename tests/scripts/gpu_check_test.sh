#!/usr/bin/env bash
# The run sheet without a GPU, and with stand-ins for the GPU, the programs, PyTorch and NVIDIA's wheels.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/tests/cli/expect.sh"
sheet=$root/scripts/gpu_check.sh
# a version manager's python3 is a script, which takes ten times as long to start
REAL_PYTHON=$(python3 -c 'import sys; print(sys.executable)')
export REAL_PYTHON PYTHON=$REAL_PYTHON WORK=$work/work OUT=$work/out BUILD=$work/build DEPS=$work/none
unset PROGRAMS SITE_PACKAGES ARCHITECTURES RUN_SECONDS MESHPLAN DEVICE COMMIT

# rows RUN [COLUMNS]: of the table in the archive
rows() { tar -xzOf "$OUT/gpu_check_$1.tar.gz" "$1/steps.tsv" | cut -f "${2:-1,2}" | tr '\t' ' '; }
row() { # row RUN STEP RESULT: that is how the step ended
  rows "$1" | grep -qx "$2 $3" || fail "$1: step $2 is not '$3': $(rows "$1" 1-4)"
}
only() { # only RUN RESULT STEP...: these steps ended so, and no other
  local run=$1 result=$2
  shift 2
  [ "$(rows "$run" | sed -n "s/ $result\$//p" | paste -sd' ')" = "$*" ] || fail "$run: not only $* are $result: $(rows "$run" 1-4)"
}
has() { # has RUN FILE: the archive holds it
  tar -tzf "out/gpu_check_$1.tar.gz" | grep -qx "$1/$2" || fail "the archive of $1 lacks $2"
}

# --- bad words
expect 2 "nothing is called 'parity'; there are: quick rest second build" "$sheet" parity
expect 2 "usage" "$sheet"
expect 2 "usage" "$sheet" quick load
expect 2 "no programs in .*: scripts/gpu_pack.sh packs them" env PROGRAMS="$work/nothing" "$sheet" quick
expect 2 "rest: no run of quick in" env PROGRAMS=/ bash -c "mkdir -p programs/cli && printf '#!/bin/sh\n' >programs/cli/meshplan &&
  chmod +x programs/cli/meshplan && PROGRAMS=programs '$sheet' rest"
rm -rf programs

# --- a machine with one GPU, and programs that do as if. Those of the steps in BREAK fail.
mkdir -p fake programs/cli programs/tests programs/bench/cuda
cat >fake/stand_in <<'SH'
#!/usr/bin/env bash
case " ${BREAK:-} " in *" ${current_step:-} "*) echo "${0##*/} is broken"; exit 3 ;; esac
[ "${HANG:-}" != "${current_step:-none}" ] || { trap '' TERM; echo hangs; while :; do sleep 1; done; }
SH
cat >fake/nvidia-smi <<'SH'
#!/usr/bin/env bash
case "$*" in
  *query-gpu=index*) echo 0 ;;
  *query-gpu=name,memory*) echo "Pretend GPU, 80000 MiB, 580.0" ;;
  *query-gpu=name*) echo "Pretend H200" ;;
  *compute_cap*) echo 9.0 ;;
  *) source "$(dirname "$0")/stand_in"; echo "driver of a pretended GPU" ;;
esac
SH
printf '#!/bin/sh\nshift 4  # -launcher fork -n RANKS\nexec "$@"\n' >fake/mpiexec
cat >fake/compute-sanitizer <<'SH'
#!/usr/bin/env bash
# what it says goes between the program's own words where it has no file of its own
said=/dev/stdout words="watched by $*"
while [[ $1 = --* ]]; do
  case $1 in
    --log-file) said=${2//%p/$$}; shift ;;
    --tool | --error-exitcode | --target-processes) shift ;;
  esac
  shift
done
echo "$words" >>"$said"
exec "$@"
SH
cat >fake/ncu <<'SH'
#!/usr/bin/env bash
source "$(dirname "$0")/stand_in"
while [ "$1" != --log-file ]; do shift; done
{
  echo '==PROF== Connected to process 1'
  echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
  for id in 0 1 2; do
    echo "\"$id\",\"kernel_$((id % 2))\",\"Duration\",\"us\",\"1,00$id.0\""
    echo "\"$id\",\"kernel_$((id % 2))\",\"Memory Throughput\",\"%\",\"80.0\""
  done
} >"$2"
SH
cat >fake/python <<'SH'
#!/usr/bin/env bash
# PyTorch, and what it is compared with
case "$*" in
  *"import torch"*) [ -z "${NO_TORCH:-}" ] || exit 1; echo "PyTorch 0" ;;
  *compare_training.py* | *compare_bf16.py*) source "$(dirname "$0")/stand_in"; echo "agree: ${*:3}" ;;
  *pytorch_step.py*)
    source "$(dirname "$0")/stand_in"
    program=eager && case "$*" in *--blocks*) program="torch.compile of blocks" ;; *--compile*) program=torch.compile ;; esac
    while [ $# -gt 0 ]; do [ "$1" != --case ] || printf '%s\tPyTorch, %s\t1000\n' "${2%%,*}" "$program"; shift; done ;;
  *) exec "$REAL_PYTHON" "$@" ;;
esac
SH
cat >programs/cli/meshplan <<'SH'
#!/usr/bin/env bash
# Losses 3, 2; those of the plan REPEAT differ from run to run.
source "$FAKES/stand_in"
command=$1 plan=none out=''
while [ $# -gt 0 ]; do
  case $1 in
    --out | --markdown | --trace) out=$2; echo "{\"plan\": \"$command\"}" >"$out" ;;
    --json) json=true ;;
    *.plan.json) plan=${1##*/} ;;
  esac
  shift
done
loss=3
[ "${REPEAT:-}" != "$plan" ] || loss=3.$RANDOM
case $command:${json:-} in
  simulate:true) echo '{"step_time_s": 0.5}' ;;
  run:true) echo "{\"tokens_per_s\": 1234.5, \"mfu\": 0.4, \"median_step_time_s\": 0.55, \"losses\": [$loss, 2]}" ;;
  *) echo "$command done" ;;
esac
SH
printf '#!/usr/bin/env bash\nsource "$FAKES/stand_in"\necho "passed $*"\n' >programs/tests/test_kernels_cuda
cp programs/cli/meshplan{,-cuda}
for program in tests/test_cuda_libraries tests/cuda_mpi_test bench/cuda/cuda_{attention,gemm,grouped_gemm,memory}_bench; do
  cp programs/tests/test_kernels_cuda "programs/$program"
done
chmod +x fake/* programs/*/* programs/bench/cuda/*
export FAKES=$work/fake

# --- the budgets are within the time that a command has on such a machine
budget=$(sed -n 's/^  group [a-z]* \([0-9]*\)$/\1/p' "$root/scripts/gpu_check/quick.sh" | paste -sd+ | bc)
[ "$budget" -gt 300 ] && [ "$budget" -le 555 ] || fail "the groups of quick have $budget s, of 555"

# --- every step passes; programs may come from an archive; nothing but it is in OUT
mkdir -p packed/gpu_pack && cp -r programs packed/gpu_pack/ && echo 1234abc >packed/gpu_pack/COMMIT
tar -cJf packed.tar.xz -C packed gpu_pack
real_path=$PATH
export SITE_PACKAGES=$work/none PATH=$work/fake:$PATH PYTHON=$work/fake/python
expect 0 "quick: nothing failed" env PROGRAMS="$work/packed.tar.xz" "$sheet" quick
steps=$(rows quick 1 | paste -sd' ')
only quick passed $steps
[ "$(wc -w <<<"$steps")" -ge 25 ] || fail "only these steps: $steps"
grep -qx "commit	1234abc" work/quick/machine.tsv || fail "the commit is not the archive's: $(cat work/quick/machine.tsv)"
grep -q "GPU	1 x Pretend GPU, 80000 MiB, 580.0" work/quick/machine.tsv || fail "the GPU is not described"
grep -qx "gpt2-xl	meshplan, deterministic	1234	0.4000	1.100" work/quick/speed.tsv || fail "speed: $(cat work/quick/speed.tsv)"
grep -qx "llama3.2-1b	PyTorch, torch.compile of blocks	1000" work/quick/speed.tsv || fail "speed: $(cat work/quick/speed.tsv)"
[ "$(ls out)" = gpu_check_quick.tar.gz ] || fail "more than one archive: $(ls out)"
has quick no_graphs.run.json
! tar -tzf out/gpu_check_quick.tar.gz | grep -q '\.u32$' || fail "data travels back"
export PROGRAMS=$work/programs

# --- what hangs and ignores SIGTERM is ended; meanwhile the archive is there, and whole; then time is over
mkdir hang
env OUT="$work/hang/out" WORK="$work/hang/work" HANG=graphs_and_none RUN_SECONDS=12 "$sheet" quick >hang/stdout 2>hang/stderr &
hanging=$!

# --- each step broken in turn, those of every third group at a time: they are named, and all others pass
groups=($(rows quick 5 | awk '!n[$0]++'))
for turn in 0 1 2; do
  broken=$(rows quick 1,5 | while read -r step group; do
    for ((i = turn; i < ${#groups[@]}; i += 3)); do [ "${groups[i]}" != "$group" ] || echo "$step"; done
  done | grep -vx load | paste -sd' ')  # what loads is asked of ldd
  expect 1 "quick: FAILED" env BREAK="$broken" "$sheet" quick
  only quick FAILED $broken
  [ "$(rows quick 1 | paste -sd' ')" = "$steps" ] || fail "steps that are missing when $broken fail: $(rows quick 1-4)"
done

# --- --from goes on: what was before keeps its rows, the rest is run again
expect 1 "quick: FAILED" env BREAK="graphs_and_none tp_pp" "$sheet" quick
expect 1 "quick: FAILED" "$sheet" quick --from ranks
only quick FAILED graphs_and_none
[ "$(rows quick 1 | paste -sd' ')" = "$steps" ] || fail "--from: the steps are $(rows quick 1-4)"
expect 1 "quick: FAILED" env BREAK=kernel_tests "$sheet" quick --from kernel_tests
only quick FAILED graphs_and_none kernel_tests
expect 2 "no such step or group; it has load driver" "$sheet" quick --from nothing
only quick FAILED graphs_and_none kernel_tests
expect 2 "has no run to go on with" env WORK="$work/empty" "$sheet" quick --from ranks

# --- the second command: what failed is watched; where nothing did, the loop
expect 0 "rest: nothing failed" "$sheet" rest
only rest passed graphs_and_none kernel_tests
grep -q "watched by --tool memcheck" work/rest/kernel_tests.log || fail "not watched: $(cat work/rest/kernel_tests.log)"
expect 0 "quick: nothing failed" env NO_TORCH=1 "$sheet" quick
only quick skipped families bf16_beside_torch torch_eager torch_compiled
expect 0 "rest: nothing failed" "$sheet" rest
only rest passed calibrate plan simulate trial compare
expect 1 "rest: FAILED" env BREAK=plan "$sheet" rest
only rest FAILED plan

# --- runs that should be the same and are not
expect 1 "2 runs, 1 with other losses" env REPEAT=tiny.plan.json "$sheet" quick --from graphs
expect 1 "20 runs, [1-9][0-9]* with other losses" env REPEAT=repeat.plan.json "$sheet" quick --from repeats

# --- the second loan
expect 0 "second: nothing failed" "$sheet" second
grep -q "kernel_0" work/second/slowest_kernels.log || fail "no table of kernels: $(cat work/second/slowest_kernels.log)"
[ "$(grep -c . work/second/speed.tsv)" -eq 11 ] || fail "speed of second: $(cat work/second/speed.tsv)"
[ "$(tar -tzf out/gpu_check_second.tar.gz | grep -c '^second/plans/.*json')" -eq 6 ] || fail "not six plans"
expect 1 "second: FAILED" env BREAK="racecheck_optimizer mixture" "$sheet" second
only second FAILED mixture racecheck_optimizer

# --- the page is made of the archives
expect 1 "quick: FAILED" env BREAK="dp2_by_nccl" "$sheet" quick
python3 "$root/scripts/gpu_check/report.py" out/*.tar.gz >page.md || fail "report.py"
for words in "1 x Pretend GPU" "| gpt2-124m | meshplan | 1,234 | 40.0 % | 1.100 | 1.23 |" "| nccl | dp2_by_nccl | FAILED" "kernel_0" \
  "gpu_check.sh quick\\|rest\\|second"; do
  grep -qF "$words" page.md || fail "the page lacks '$words': $(cat page.md)"
done
mkdir -p indexed/reports/results && cp page.md indexed/reports/results/gpu.md
python3 "$root/scripts/results_index.py" --root indexed || fail "the page's header"
grep -q "(gpu.md) .* 1 x Pretend GPU" indexed/reports/results/README.md || fail "$(cat indexed/reports/results/README.md)"
expect 2 "nothing.tar.gz: No such file|cannot be read" python3 "$root/scripts/gpu_check/report.py" nothing.tar.gz

wait $hanging
code=$?
[ $code -eq 1 ] || fail "a run that hangs: exit code $code instead of 1: $(cat hang/stdout hang/stderr)"
grep -q "graphs_and_none: ended by its time limit of" hang/stderr || fail "a step that hangs: $(cat hang/stdout hang/stderr)"
grep -q "kernel_tests: not run: the time of quick is over" hang/stderr || fail "after it: $(cat hang/stderr)"
OUT=hang/out row quick graphs_and_none FAILED
[ -z "$(ranks)" ] || fail "left over: $(ranks)"

# --- without a GPU programs are started all the same; that they say so is part of the step
mkdir bare && for program in bash awk cat chmod column cp cut date dirname du env find grep head ldd ls mkdir mv nproc \
  paste python3 readlink rm sed seq sleep sort tail tar timeout touch tr uniq wc xargs gzip git; do
  ln -s "$(PATH=$real_path command -v $program)" "bare/$program"
done
ln -s "$work/fake/mpiexec" bare/mpiexec
expect 1 "load: exit code 1: tests/test_kernels_cuda: exit code 0: passed" env PATH="$work/bare" "$sheet" quick
for program in tests/test_kernels_cuda tests/cuda_mpi_test bench/cuda/cuda_{attention,gemm,grouped_gemm,memory}_bench; do
  printf '#!/bin/sh\necho "skipped: no GPU"; exit 77\n' >"programs/$program"
done
printf '#!/bin/sh\necho "no GPU: there is none"; exit 2\n' >programs/cli/meshplan-cuda
expect 0 "graphs_and_none: skipped: no GPU: this machine has no NVIDIA driver" env PATH="$work/bare" "$sheet" quick
only quick passed load library_tests
has quick machine.tsv
printf '#!/bin/sh\nexit 9\n' >bare/nvidia-smi && chmod +x bare/nvidia-smi
expect 0 "no GPU: there is a driver, but nvidia-smi finds no device" env PATH="$work/bare" "$sheet" quick
expect 0 "second: nothing failed" env PATH="$work/bare" "$sheet" second
unset PROGRAMS

# --- a build is configured with wheels that have no plain .so names
PATH=$real_path PYTHON=$REAL_PYTHON SITE_PACKAGES=''
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
  for file in "$toolkit"/lib{64,}/lib"$library"*.so.*; do [ ! -e "$file" ] || cp -s "$file" "$wheel/lib/" 2>/dev/null; done
  for file in "$toolkit/include/${library%Lt}"*.h; do [ ! -e "$file" ] || ln -sf "$file" "$wheel/include/"; done
done
for library in cudnn nccl cu13; do
  [ -n "$(ls "wheels/nvidia/$library/lib")" ] || fail "no libraries for the stand-in of the wheel $library in '$toolkit'"
done
expect 0 "build: nothing failed" env SITE_PACKAGES="$work/wheels" TARGETS= "$sheet" build
for name in cudnn nccl cublasLt; do
  grep -q "^${name}_LIBRARY:FILEPATH=$work/build/nvidia/lib/lib$name.so\$" build/CMakeCache.txt ||
    fail "$name is not the wheel's: $(grep "^${name}_" build/CMakeCache.txt)"
  grep -q "^${name}_INCLUDE_DIR:PATH=$work/build/nvidia/include\$" build/CMakeCache.txt ||
    fail "$name's header is not the wheel's: $(grep "^${name}_" build/CMakeCache.txt)"
done
grep -q 'MESHPLAN_WERROR:.*=OFF' build/CMakeCache.txt || fail "warnings of a newer compiler are errors"
# what no wheel has is the toolkit's, whether its folder is called lib or lib64
link_nvidia "$work/links"
for name in libcudart.so libcublasLt.so libcudnn.so libcudnn_graph.so libnccl.so; do
  [ -e "links/lib/$name" ] || compgen -G "links/lib/$name.*" >/dev/null || fail "no $name among the links: $(ls links/lib)"
done
finish
