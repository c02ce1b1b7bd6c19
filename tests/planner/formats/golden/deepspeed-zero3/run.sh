#!/usr/bin/env bash
# Starts the training on this node; on every node with its own NODE_RANK.
#   TRAIN=train.py ./run.sh --model_name_or_path ...
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec torchrun --nnodes=2 --nproc-per-node=8 --node-rank="${NODE_RANK:-0}" \
  --rdzv-backend=c10d --rdzv-endpoint="${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
  "${TRAIN:?is the training script, one on the Trainer of Hugging Face}" \
  --deepspeed "$here/ds_config.json" \
  --per_device_train_batch_size 1 \
  --gradient_accumulation_steps 8 \
  --max_seq_length 4096 \
  --max_steps 1000 \
  --optim adamw_torch_fused \
  --learning_rate 0.0003 \
  --weight_decay 0.1 \
  --adam_beta1 0.9 \
  --adam_beta2 0.95 \
  --adam_epsilon 1e-08 \
  --max_grad_norm 1.0 \
  --warmup_steps 100 \
  --lr_scheduler_type cosine_with_min_lr \
  --lr_scheduler_kwargs '{"min_lr_rate": 0.1}' "$@"
