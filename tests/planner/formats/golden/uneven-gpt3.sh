#!/bin/bash
# gpt3-175b: tp8 cp2 pp4 vpp3 dp2 on 16 nodes of 8 H100 SXM 80 GB
# Written by meshplan export for Megatron-LM d98e8a64; README.md says why this plan. On every node:
#   NODE_RANK=0 MASTER_ADDR=first-node DATA_PATH=... TOKENIZER_MODEL=... ./run.sh [more flags]
set -euo pipefail

# Kernels start in the order in which they were issued: Megatron-LM requires it beside tp and cp
# before Blackwell.
export CUDA_DEVICE_MAX_CONNECTIONS=1

MEGATRON_PATH=${MEGATRON_PATH:-.}  # where pretrain_gpt.py lies
GPUS_PER_NODE=8
NNODES=16
NODE_RANK=${NODE_RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-29500}
TRAIN_ITERS=${TRAIN_ITERS:-1000}  # a plan does not say how long to train

DISTRIBUTED_ARGS=(
  --nproc_per_node "$GPUS_PER_NODE"
  --nnodes "$NNODES"
  --node_rank "$NODE_RANK"
  --master_addr "$MASTER_ADDR"
  --master_port "$MASTER_PORT"
)

# The model, as the plan describes it.
MODEL_ARGS=(
  --num-layers 96
  --hidden-size 12288
  --ffn-hidden-size 49152
  --num-attention-heads 96
  --vocab-size 50257  # padded to a multiple of 128 * tp when the model is built
  --init-method-std 0.02
  --normalization LayerNorm
  --norm-epsilon 1e-05
  --attention-dropout 0.0  # Megatron's default is 0.1
  --hidden-dropout 0.0  # Megatron's default is 0.1
  --kv-channels 128
  --position-embedding-type learned_absolute
  --max-position-embeddings 2048
)

EXPERT_ARGS=()

# Parallel axes. Ranks lie tp-cp-ep-dp-pp from the innermost to the outermost.
PARALLEL_ARGS=(
  --tensor-model-parallel-size 8
  --context-parallel-size 2
  --cp-comm-type p2p  # how attention reaches the keys of other cp ranks
  --pipeline-model-parallel-size 4
  --pipeline-model-parallel-layout 'Et*7|(t*8|)*2t*9|(t*8|)*6t*9|t*7L'  # E embedding, t layer, m prediction module, L loss, | between (virtual) stages
)

MEMORY_ARGS=()

# Numbers of products, weights and gradients.
PRECISION_ARGS=(
  --fp16
)

# Batch and optimizer.
TRAINING_ARGS=(
  --seq-length 2048
  --micro-batch-size 1
  --global-batch-size 512
  --optimizer adam  # weight decay is decoupled: AdamW
  --lr 0.0003
  --lr-decay-style cosine
  --min-lr 3e-05
  --lr-warmup-iters 0
  --adam-beta1 0.9
  --adam-beta2 0.95
  --adam-eps 1e-08
  --weight-decay 0.1
  --clip-grad 1
)

# Communication beside computation, as predicted.
OVERLAP_ARGS=(
  --overlap-grad-reduce  # buckets are summed while backward computes
)

# Data: MOCK_DATA=1 trains on tokens that Megatron-LM makes up, as validate.sh does.
if [ "${MOCK_DATA:-0}" = 1 ]; then
  DATA_ARGS=(--mock-data --tokenizer-type NullTokenizer)
else
  DATA_ARGS=(
    --data-path ${DATA_PATH:?the prefix of your .bin and .idx files, or MOCK_DATA=1}
    --tokenizer-type "${TOKENIZER_TYPE:-HuggingFaceTokenizer}"
    --tokenizer-model "${TOKENIZER_MODEL:?its folder or file, or MOCK_DATA=1}"
    --split "${SPLIT:-99,1,0}"
  )
fi

OUTPUT_ARGS=(
  --log-interval 1
  --log-throughput  # TFLOP/s of each GPU beside every step
  --eval-iters 0
)

ALL_ARGS=(
  "${MODEL_ARGS[@]}"
  "${EXPERT_ARGS[@]}"
  "${PARALLEL_ARGS[@]}"
  "${MEMORY_ARGS[@]}"
  "${PRECISION_ARGS[@]}"
  "${TRAINING_ARGS[@]}"
  "${OVERLAP_ARGS[@]}"
  "${DATA_ARGS[@]}"
  "${OUTPUT_ARGS[@]}"
  --train-iters "$TRAIN_ITERS"
  "$@"
)

if [ -n "${FAKE_RANK:-}" ]; then
  # One GPU stands for this rank of the whole job; nothing is communicated.
  RANK=$FAKE_RANK LOCAL_RANK=0 WORLD_SIZE=$((GPUS_PER_NODE * NNODES)) \
    exec python "$MEGATRON_PATH/pretrain_gpt.py" "${ALL_ARGS[@]}" --fake-process-group
fi
exec torchrun "${DISTRIBUTED_ARGS[@]}" "$MEGATRON_PATH/pretrain_gpt.py" "${ALL_ARGS[@]}"
