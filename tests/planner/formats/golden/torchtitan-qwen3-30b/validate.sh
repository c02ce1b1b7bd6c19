#!/usr/bin/env bash
# Lets torchtitan build the model and one step of this configuration on one GPU.
#   TORCHTITAN_PATH=/path/to/torchtitan ./validate.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python3 -m py_compile "$here/torchtitan_plan.py"
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
cd "${TORCHTITAN_PATH:-.}"  # where torchtitan lies
NGPU=16 LOCAL_RANK=0 exec python3 -m torchtitan.train --module torchtitan_plan --config planned \
  --comm.mode=fake_backend --training.steps 1 "$@"
