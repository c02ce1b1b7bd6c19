#!/usr/bin/env bash
# Installs what is missing, builds Release, runs the whole test suite.
#   ./test.sh [ctest arguments]      ./test.sh -L unit      ./test.sh -R parity
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$root/scripts/setup.sh" release
cd "$root/build/release"
exec ctest --output-on-failure "$@"
