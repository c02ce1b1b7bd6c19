#!/usr/bin/env bash
# Packs meshplan's GPU programs and all that they load but NVIDIA's libraries into one archive, for a machine with a GPU
# on which nothing can be installed or built in time: the command with CUDA, kernel tests, tests of ranks, benches,
# MPICH. scripts/gpu_check.sh unpacks it there by itself; data and plans are made there.
#   scripts/gpu_pack.sh [PRESET [ARCHIVE]]     default: ci, .deps/gpu_pack.tar.xz (ignored by git)
# Builds what is missing in build/PRESET, from the compiler's cache where it can.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=${1:-ci} archive=${2:-$root/.deps/gpu_pack.tar.xz}
most_mib=45  # the tracked tree takes 14 more, and what travels to such a machine must stay below 60
source "$root/scripts/gpu_check/closure.sh"
"$root/scripts/setup.sh" "$preset" carried_to_gpus
build=$root/build/$preset
mkdir -p "$(dirname "$archive")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dest=$work/gpu_pack
while read -r program; do
  mkdir -p "$dest/programs/$(dirname "$program")"
  strip -o "$dest/programs/$program" "$build/$program"
  pack_libraries "$dest/lib" "$build/$program"
done <"$build/carried_to_gpus.txt"
pack_mpich "$dest"
{
  git -C "$root" rev-parse --short HEAD
  git -C "$root" diff --quiet HEAD -- || echo "with changes"
} | paste -sd ' ' >"$dest/COMMIT"
pack_archive "$archive" "$work" "$most_mib" gpu_pack
