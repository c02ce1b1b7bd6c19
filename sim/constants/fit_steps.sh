#!/usr/bin/env bash
# Fits the constants of whole steps (sim/constants/fitted.json) on the development table of published runs and on those
# handed-over runs that have experts, whose causes of error are known: sim/constants/fit_steps.sh MESHPLAN OUT.json
# The tables lie beside the checkout, for they are not ours to publish (docs/accuracy.md).
set -euo pipefail
meshplan=$1 out=$2
tables=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../shared/validation" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$tables" "$work" <<'PYTHON'
import csv, pathlib, sys
tables, work = (pathlib.Path(a) for a in sys.argv[1:])
def rows(name):
    with open(tables / name, newline="") as file:
        return list(csv.reader(file))
def write(name, lines):
    with open(work / name, "w", newline="") as file:
        csv.writer(file).writerows(lines)
header, *handed = rows("published_handed.csv")
runs = rows("published_dev.csv") + [row for row in handed if row[header.index("experts")]]
ids = {row[0] for row in runs}
releases = rows("releases.csv") + rows("releases_handed.csv")[1:]
write("runs.csv", runs)
write("releases.csv", releases[:1] + [row for row in releases[1:] if row[0] in ids])
PYTHON
"$meshplan" validate --table "$work/runs.csv" --releases "$work/releases.csv" --fit "$out"
