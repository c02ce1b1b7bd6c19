#!/usr/bin/env bash
# Predictions of published runs must not get worse than the committed figures: $1 is the command. The
# table lies beside the checkout, for it is not ours to publish.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
table=$root/../shared/validation/published_dev.csv
releases=$root/../shared/validation/releases.csv
for file in "$table" "$releases"; do
  if [ ! -f "$file" ]; then
    echo "skipped: there is no table of published runs at $file"
    exit 77
  fi
done
exec "$1" validate --table "$table" --releases "$releases" --check "$root/reports/results/accuracy_dev_202611.json"
