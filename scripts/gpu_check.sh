#!/usr/bin/env bash
# The run sheet of a machine with a GPU that is lent for minutes (docs/gpu_check.md): checks and measures what
# scripts/gpu_pack.sh packed.
#   scripts/gpu_check.sh quick [--from STEP]    first light in under 9:30: right? how fast? as predicted?
#   scripts/gpu_check.sh rest                   200 s more: where quick was green the loop from calibration to
#                                               comparison, else what failed under compute-sanitizer
#   scripts/gpu_check.sh second [--from STEP]   what another loan is for: predictions, PyTorch, profiles, races
#   scripts/gpu_check.sh build                  configures and compiles there, where programs that were packed do not run
# It prints as it goes, keeps OUT/gpu_check_NAME.tar.gz whole after every step, and ends with 0 where nothing failed.
# What needs a GPU says so where there is none; all programs are started there all the same.
# Environment:
#   OUT            folder of the archives; default: WORK/out
#   WORK           folder for everything else; default: build/gpu_check
#   PROGRAMS       archive of scripts/gpu_pack.sh, or a build tree; default: .deps/gpu_pack.tar.xz, else BUILD
#   SITE_PACKAGES  folder with nvidia/cudnn, nvidia/nccl, nvidia/cu13; default: those of PYTHON, then the toolkit's
#   PYTHON         with PyTorch, if any; default: python3
#   DEVICE         cpu: a rehearsal with small models on processor cores of what can be rehearsed there
#   RUN_SECONDS    after which nothing more is started and what runs is ended; default: 560 (quick), 200, 590
# Of build alone:
#   BUILD          build tree; default: build/gpu
#   DEPS           archive of scripts/pack_dependencies.sh; default: .deps/deps.tar.xz; the machine's packages if there is none
#   ARCHITECTURES  to compile for, e.g. 90-real; default: those of this machine's GPUs
#   TARGETS        what is made, in this order; empty = only configure
#   JOBS           of the compiler; default: all cores
set -uo pipefail
set -a  # steps are shells of their own, which a time limit can end: they know these functions and variables
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
sheet=$root/scripts/gpu_check
runs="quick rest second build"
usage() { echo "usage: gpu_check.sh quick|rest|second|build [--from STEP]" >&2; exit 2; }
case " $runs " in
  *" ${1:-} "*) ;;
  *) [ $# -eq 0 ] || echo "gpu_check: nothing is called '$1'; there are: $runs" >&2; usage ;;
esac
case $#:${2:-} in 1:) ;; 3:--from) ;; *) usage ;; esac

BUILD=${BUILD:-$root/build/gpu}
WORK=${WORK:-$root/build/gpu_check}
OUT=${OUT:-$WORK/out}
DEPS=${DEPS:-$root/.deps/deps.tar.xz}
PYTHON=${PYTHON:-python3}
JOBS=${JOBS:-$(nproc)}
DEVICE=${DEVICE:-cuda}
SITE_PACKAGES=${SITE_PACKAGES:-}
[ -n "${PROGRAMS:-}" ] || if [ -f "$root/.deps/gpu_pack.tar.xz" ]; then PROGRAMS=$root/.deps/gpu_pack.tar.xz; else PROGRAMS=$BUILD; fi
MPIEXEC_LAUNCHER=fork  # needs no ssh
mkdir -p "$OUT" "$WORK" && OUT=$(cd "$OUT" && pwd) && WORK=$(cd "$WORK" && pwd) || exit 2
for part in steps machine build programs training ranks speed loop profile quick rest second; do
  source "$sheet/$part.sh"
done

[ "$1" = build ] || use_programs
if [ "$1" != build ] && [ ! -x "$meshplan" ]; then
  echo "gpu_check: no programs in $programs: scripts/gpu_pack.sh packs them, scripts/gpu_check.sh build makes them" >&2
  exit 2
fi
"run_$1" "${3:-}"
end_run
