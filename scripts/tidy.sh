#!/usr/bin/env bash
# clang-tidy with the repository's .clang-tidy over the layers' sources; every finding is an error.
#   scripts/tidy.sh            the newest changes, as many files as take two minutes on two cores, or as many as a
#                              shallow clone knows
#   scripts/tidy.sh BASE       what changed since the commit that HEAD and BASE have in common
#   scripts/tidy.sh --all      everything, twelve files at a time: half an hour on two cores
# A header is checked by way of the source of its name; what passed before is not checked again (tidy_one.py).
# Needs a configured build: BUILD (default build/dev, configured here if it is not; for --all build/release, whose
# files are compiled together) holds compile_commands.json.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
layers='core|models|program|sim|planner|kernels|runtime|reports|cli'
few=10  # files that take less than two minutes: one takes 10 to 30 s of processor time
since=${1:-}
preset=dev
checks=()
if [ "$since" = --all ]; then
  preset=release
  checks=(--checks=-bugprone-suspicious-include)  # which files that are compiled together do
fi
build=${BUILD:-build/$preset}
[ -f "$build/compile_commands.json" ] || [ "$preset" != dev ] || [ -n "${BUILD:-}" ] ||
  cmake --preset dev -DMESHPLAN_CUDA=OFF >/dev/null
[ -f "$build/compile_commands.json" ] || {
  echo "tidy: no $build/compile_commands.json; configure first: cmake --preset $preset" >&2
  exit 2
}
tidy=${CLANG_TIDY:-clang-tidy-16}
command -v "$tidy" >/dev/null || { echo "tidy: no $tidy (apt-get install clang-tidy-16)" >&2; exit 2; }

# All that the build compiles, as paths below the root.
compiled() {
  python3 -c '
import json, os, sys
for entry in json.load(open(sys.argv[1])):
    print(os.path.relpath(os.path.realpath(entry["file"])))' "$build/compile_commands.json" | awk '!seen[$0]++'
}
# The sources of layers among the names on stdin, once each; of a header that of its name.
sources() {
  { grep -E "^($layers)/.*\.(cpp|hpp)$" || true; } | while read -r name; do
    if [[ $name == *.hpp ]]; then
      layer=${name%%/*}
      name=$(git ls-files "$layer/*/$(basename "$name" .hpp).cpp" | head -n 1)
    fi
    [ -z "$name" ] || [ ! -f "$name" ] || echo "$name"
  done | awk 'NR == FNR { known[$0]; next } $0 in known && !seen[$0]++' <(compiled) -
}

# What the history changed last, newest first. The oldest commit of a shallow clone seems to add every file.
changed() {
  local boundary=()
  [ "$(git rev-parse --is-shallow-repository)" = false ] ||
    mapfile -t boundary < "$(git rev-parse --git-path shallow)"
  git log -n 200 --name-only --format= HEAD --not "${boundary[@]}"
}

case $since in
  --all) mapfile -t files < <(compiled | grep -E "^($build/)?($layers)/.*\.(cpp|cxx)$" | grep -vE '(_presets|page_template)\.cpp$') ;;
  '') mapfile -t files < <(changed | sources | awk -v few="$few" 'NR <= few') ;;
  *)
    base=$(git merge-base HEAD "$since")
    mapfile -t files < <(git diff --name-only "$base" | sources)
    ;;
esac
[ ${#files[@]} -gt 0 ] || { echo "tidy: no source changed"; exit 0; }
echo "tidy: ${#files[@]} files"
printf '%s\0' "${files[@]}" |
  xargs -0 -P "${JOBS:-$(nproc)}" -I{} scripts/tidy_one.py "$tidy" "$build" {} "${checks[@]}" || exit 1
