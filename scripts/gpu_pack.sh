#!/usr/bin/env bash
# Packs meshplan's GPU programs and all that they load but NVIDIA's libraries into one archive, for a machine with a GPU
# on which nothing can be installed or built in time: the command with CUDA, kernel tests, tests of ranks, benches,
# MPICH. scripts/gpu_check.sh unpacks it there by itself; data and plans are made there.
#   scripts/gpu_pack.sh [ARCHIVE]     default: .deps/gpu_pack.tar.xz (ignored by git)
#   scripts/gpu_pack.sh FOLDER/       lays out what would be packed
# Environment: PRESET, of which build/PRESET is brought up to date first, from the compiler's cache where it can (default:
# ci); or BUILD, a build tree to be taken as it is.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
archive=${1:-$root/.deps/gpu_pack.tar.xz}
most_mib=45  # the tracked tree takes 14 more, and what travels to such a machine must stay below 60
source "$root/scripts/gpu_check/closure.sh"
if [ -z "${BUILD:-}" ]; then
  "$root/scripts/setup.sh" "${PRESET:-ci}" carried_to_gpus
  BUILD=$root/build/${PRESET:-ci}
fi
[ -f "$BUILD/carried_to_gpus.txt" ] || { echo "gpu_pack: $BUILD has no programs for GPUs: no CUDA toolkit was found" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $archive in */) dest=${archive%/} ;; *) dest=$work/gpu_pack ;; esac
while read -r program; do
  mkdir -p "$dest/programs/$(dirname "$program")"
  strip -o "$dest/programs/$program" "$BUILD/$program"
  pack_libraries "$dest/lib" "$BUILD/$program"
done <"$BUILD/carried_to_gpus.txt"
pack_mpich "$dest"
{
  git -C "$root" rev-parse --short HEAD
  git -C "$root" diff --quiet HEAD -- || echo "with changes"
} | paste -sd ' ' >"$dest/COMMIT"
[ "$dest" = "${archive%/}" ] || pack_archive "$archive" "$work" "$most_mib" gpu_pack
