#!/usr/bin/env bash
# Starts the training on this node; on every node with its own NODE_RANK.
#   TORCHTITAN_PATH=/path/to/torchtitan ./run.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
cd "${TORCHTITAN_PATH:-.}"  # where torchtitan lies
export PYTORCH_ALLOC_CONF=expandable_segments:True
exec torchrun --nnodes=2 --nproc-per-node=8 --node-rank="${NODE_RANK:-0}" \
  --rdzv-backend=c10d --rdzv-endpoint="${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
  -m torchtitan.train --module torchtitan_plan --config planned "$@"
