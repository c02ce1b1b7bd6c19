#!/usr/bin/env bash
# Installs what is missing, builds Release, runs the whole test suite.
#   ./test.sh [ctest arguments]      ./test.sh -L unit      ./test.sh -R parity
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
preset=${MESHPLAN_PRESET:-release}  # CI's is `ci`: warnings are errors
"$root/scripts/setup.sh" "$preset"
cd "$root/build/$preset"
# Tests say how many cores they take, and which of them run alone.
exec ctest --output-on-failure --parallel "$(nproc)" "$@"
