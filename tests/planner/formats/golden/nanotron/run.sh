#!/usr/bin/env bash
# Starts the training on this node; on every node with its own NODE_RANK.
#   NANOTRON_PATH=/path/to/nanotron ./run.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export CUDA_DEVICE_MAX_CONNECTIONS=1
exec torchrun --nnodes=4 --nproc-per-node=8 --node-rank="${NODE_RANK:-0}" \
  --rdzv-backend=c10d --rdzv-endpoint="${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
  "${NANOTRON_PATH:-.}/run_train.py" \
  --config-file "$here/nanotron.yaml" "$@"
