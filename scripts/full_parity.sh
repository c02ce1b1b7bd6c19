#!/usr/bin/env bash
# Every plan of the parity tests (ctest runs as many as have all pairs of their techniques), then one
# table of what was covered, computed from the plans that ran: suites with their worst gradient error,
# plans by pair of techniques, and legal pairs that no plan has, which is an error.
#   scripts/full_parity.sh [--quick] [folder of the build; default build/release]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
label=full configuration=(-C full)
if [ "${1:-}" = --quick ]; then
  label=mpi configuration=()
  shift
fi
build=${1:-$root/build/release}
[ -x "$build/tests/test_parity" ] ||
  { echo "full_parity: no tests in $build; build them first: ./test.sh -N, or cmake --build $build" >&2; exit 2; }
build=$(cd "$build" && pwd)  # tests run in folders of their own
export MESHPLAN_PARITY_LOG=$build/parity.log
: >"$MESHPLAN_PARITY_LOG"
code=0
(cd "$build" && ctest "${configuration[@]}" -L "^$label\$" -R runtime/parity --output-on-failure) || code=$?
"$build/tests/test_parity" "[.coverage]" || code=$?
exit $code
