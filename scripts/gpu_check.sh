#!/usr/bin/env bash
# The run sheet of a machine with GPUs (docs/gpu_check.md): builds meshplan there, checks and measures it.
#   scripts/gpu_check.sh build|smoke|kernels|parity|speed|loop|all
# A stage ends within 8 minutes, prints as it goes and leaves OUT/gpu_check_STAGE.tar.gz. It ends with 0 where all
# that ran passed; a stage that needs a GPU says so where there is none, and ends with 0.
# Environment:
#   OUT            folder of the archives; default: build/gpu_check
#   BUILD          build tree; default: build/gpu
#   DEPS           archive of scripts/pack_dependencies.sh; default: .deps/deps.tar.xz; the machine's packages if there is none
#   PROGRAMS       programs built beforehand: a build tree, or the archive of a build stage; no compiler is needed then
#   ARCHITECTURES  to compile for, e.g. 90-real; default: those of this machine's GPUs
#   TARGETS        what build makes, in this order; empty = only configure
#   SITE_PACKAGES  folder with nvidia/cudnn, nvidia/nccl, nvidia/cu13 that goes before the toolkit
#   PYTHON         with PyTorch, if any; default: python3
#   JOBS           of the compiler; default: all cores
#   STAGE_SECONDS  after which a stage starts nothing more and ends what runs; default: 460
set -uo pipefail
set -a  # steps are shells of their own, which a time limit can end: they know these functions and variables
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
sheet=$root/scripts/gpu_check
stages="build smoke kernels parity speed loop"
for part in steps machine "$@"; do
  case " steps machine $stages all " in
    *" $part "*) ;;
    *) echo "gpu_check: no stage '$part'; there are: $stages all" >&2; exit 2 ;;
  esac
done
[ $# -eq 1 ] || { echo "usage: gpu_check.sh STAGE, one of: $stages all" >&2; exit 2; }

BUILD=${BUILD:-$root/build/gpu}
OUT=${OUT:-$root/build/gpu_check}
DEPS=${DEPS:-$root/.deps/deps.tar.xz}
PYTHON=${PYTHON:-python3}
JOBS=${JOBS:-$(nproc)}
PROGRAMS=${PROGRAMS:-}
SITE_PACKAGES=${SITE_PACKAGES:-}
MPIEXEC_LAUNCHER=fork  # needs no ssh
mkdir -p "$OUT" "$BUILD" && OUT=$(cd "$OUT" && pwd) && BUILD=$(cd "$BUILD" && pwd) || exit 2
source "$sheet/steps.sh"
source "$sheet/machine.sh"
for part in $stages; do source "$sheet/$part.sh"; done

# Stages are processes of their own: each has its time, its archive and its exit code.
if [ "$1" = all ]; then
  code=0
  for part in $stages; do
    "${BASH_SOURCE[0]}" "$part" || { code=1; [ "$part" != build ] || break; }
  done
  exit $code
fi

use_dependencies
use_programs
if [ "$1" != build ] && [ "$num_gpus" -eq 0 ]; then
  begin_stage "$1"
  skip "$1" "no GPU: $no_gpu_reason; $1 skipped"
elif [ "$1" != build ] && [ ! -x "$meshplan" ]; then
  begin_stage "$1"
  refuse "$1" "no programs in $programs: run scripts/gpu_check.sh build first, or name them by PROGRAMS"
else
  begin_stage "$1"
  "stage_$1"
fi
end_stage
