#!/usr/bin/env bash
# Formulas of single operators must not get worse than the committed figures: $1 is the command. The
# measured tables lie beside the checkout, for they are larger than what is shipped.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tables=$root/../shared/reference/operators
if [ ! -d "$tables" ]; then
  echo "skipped: there are no tables of measured operators at $tables"
  exit 77
fi
exec "$1" validate --operators "$tables" --check "$root/reports/results/operators_202611.json"
