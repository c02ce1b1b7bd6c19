#!/usr/bin/env bash
# Does what scripts/gpu_pack.sh packed start on a machine that has Python and NVIDIA's wheels, and nothing else of ours?
# Makes a minimal root, puts this machine's CUDA toolkit in place of the wheels, and runs scripts/gpu_check.sh quick there:
# every program as far as "no GPU", then, on processor cores, what can be rehearsed there: jobs of four ranks among it.
#   scripts/gpu_roots.sh bookworm|trixie [ARCHIVE]      default: .deps/gpu_pack.tar.xz
#   scripts/gpu_roots.sh bookworm|trixie --build        instead scripts/gpu_check.sh build, with the archive of
#                                                       scripts/pack_dependencies.sh and a newer compiler: configures, and
#                                                       compiles what TARGETS names (default: planner)
set -euo pipefail
usage() { echo "usage: scripts/gpu_roots.sh bookworm|trixie [ARCHIVE | --build]" >&2; exit 2; }
suite=${1:-}
[ $# -ge 1 ] && [ $# -le 2 ] || usage
source "$(dirname "${BASH_SOURCE[0]}")/bare_root.sh"
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || skip "no CUDA toolkit, whose libraries are needed"
PYTHON=python3 SITE_PACKAGES='' source "$repository/scripts/gpu_check/machine.sh"
form=packed archive=${2:-$repository/.deps/gpu_pack.tar.xz} packages=python3
if [ "${2:-}" = --build ]; then
  form=build archive=$repository/.deps/deps.tar.xz packages=python3,g++,cmake,ninja-build
fi
[ -f "$archive" ] || { echo "gpu_roots: no $archive: scripts/gpu_pack.sh, scripts/pack_dependencies.sh" >&2; exit 2; }

make_root "$packages"
mkdir -p "$machine/root/meshplan/.deps"
cp "$archive" "$machine/root/meshplan/.deps/"
if [ $form = build ]; then
  bound=("$(toolkit):/usr/local/cuda")
  stage "gpu_check.sh build" inside "TARGETS='${TARGETS-planner}' ARCHITECTURES=90-real scripts/gpu_check.sh build"
else
  # as the wheels lie below Python's packages
  bound=("$(toolkit):/opt/toolkit")
  wheels=$machine/usr/lib/python3/dist-packages/nvidia
  for wheel in cu13 cudnn nccl; do mkdir -p "$wheels/$wheel" && ln -s /opt/toolkit/lib "$wheels/$wheel/lib"; done
  stage "gpu_check.sh quick" inside "scripts/gpu_check.sh quick"
  grep -P '^(load|library_tests)\t' "$work/log"
  grep -qP '^load\tpassed' "$work/log" || { echo "gpu_roots: programs were not started" >&2; exit 1; }
  stage "DEVICE=cpu gpu_check.sh quick" inside "DEVICE=cpu scripts/gpu_check.sh quick"
  grep -qP '^tp_pp\tpassed' "$work/log" || { echo "gpu_roots: ranks were not started" >&2; exit 1; }
fi
grep -P '\t(passed|skipped|FAILED)\t' "$work/log"
