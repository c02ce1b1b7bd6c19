#!/usr/bin/env bash
# clang-tidy with the repository's .clang-tidy; what it makes an error ends with exit code 1.
# Usage: scripts/tidy.sh [FILES]     default: all sources of core, models, program, runtime and cli
# Needs a configured build: BUILD (default build/release) holds compile_commands.json.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
if [ ! -f "$build/compile_commands.json" ]; then
  echo "tidy.sh: no $build/compile_commands.json; configure first: cmake --preset release" >&2
  exit 2
fi
files=("$@")
if [ ${#files[@]} -eq 0 ]; then
  mapfile -t files < <(find core/src models/src program/src runtime/src cli/src -name '*.cpp' | sort)
fi
# The checks that the configuration makes errors; the rest of it advises.
checks='-*,bugprone-*,clang-analyzer-*,performance-*,-bugprone-easily-swappable-parameters'
printf '%s\0' "${files[@]}" |
  xargs -0 -P "${JOBS:-$(nproc)}" -n 1 clang-tidy -p "$build" --quiet --checks="$checks" \
    --warnings-as-errors="$checks" || exit 1
