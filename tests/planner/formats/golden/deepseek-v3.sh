#!/bin/bash
# deepseek-v3: tp2 sp pp16 dp64 ep64 on 256 nodes of 8 H100 SXM 80 GB
# Written by meshplan export for Megatron-LM d98e8a64; README.md says why this plan. On every node:
#   NODE_RANK=0 MASTER_ADDR=first-node DATA_PATH=... TOKENIZER_MODEL=... ./run.sh [more flags]
set -euo pipefail

# Kernels start in the order in which they were issued: Megatron-LM requires it beside tp and cp
# before Blackwell.
export CUDA_DEVICE_MAX_CONNECTIONS=1

MEGATRON_PATH=${MEGATRON_PATH:-.}  # where pretrain_gpt.py lies
GPUS_PER_NODE=8
NNODES=256
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
  --num-layers 61
  --hidden-size 7168
  --ffn-hidden-size 18432
  --num-attention-heads 128
  --vocab-size 129280  # padded to a multiple of 128 * tp when the model is built
  --init-method-std 0.02
  --normalization RMSNorm
  --norm-epsilon 1e-06
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --attention-dropout 0.0  # Megatron's default is 0.1
  --hidden-dropout 0.0  # Megatron's default is 0.1
  --multi-latent-attention
  --q-lora-rank 1536
  --kv-lora-rank 512
  --qk-head-dim 128
  --qk-pos-emb-head-dim 64
  --v-head-dim 128
  --kv-channels 128
  --qk-layernorm
  --position-embedding-type rope
  --max-position-embeddings 163840
  --rotary-base 10000
  --rope-type yarn
  --rotary-scaling-factor 40
  --mscale 1
  --mscale-all-dim 1
)

# Mixture of experts: how wide, and how tokens are routed.
EXPERT_ARGS=(
  --num-experts 256
  --moe-ffn-hidden-size 2048
  --moe-layer-freq '([0]*3+[1]*58)'  # 1: a layer with experts
  --moe-shared-expert-intermediate-size 2048
  --moe-router-topk 8
  --moe-router-score-function sigmoid
  --moe-router-topk-scaling-factor 2.5
  --moe-router-num-groups 8
  --moe-router-group-topk 4
  --moe-router-enable-expert-bias
  --moe-router-bias-update-rate 0.001
  --moe-router-load-balancing-type none
  --moe-token-dispatcher-type alltoall  # how tokens travel to their experts
  --moe-grouped-gemm  # all experts of a rank in one product
  --moe-permute-fusion
  --moe-router-dtype fp32
)

# Parallel axes. Ranks lie tp-cp-ep-dp-pp from the innermost to the outermost.
PARALLEL_ARGS=(
  --tensor-model-parallel-size 2
  --sequence-parallel  # divides the tokens between tp regions
  --context-parallel-size 1
  --pipeline-model-parallel-size 16
  --decoder-first-pipeline-num-layers 3
  --decoder-last-pipeline-num-layers 2
  --expert-model-parallel-size 64
  --expert-tensor-parallel-size 1  # its default is tp
  --use-distributed-optimizer  # ZeRO 1: optimizer state is divided over dp * cp
)

# What is computed again in backward, or kept elsewhere.
MEMORY_ARGS=(
  --recompute-granularity full
  --recompute-method block  # block: the first layers of each virtual stage
  --recompute-num-layers 2
)

# Numbers of products, weights and gradients.
PRECISION_ARGS=(
  --bf16
  --fp8-format hybrid  # values and weights E4M3, gradients E5M2
  --fp8-recipe tensorwise
  --grad-reduce-in-bf16  # as predicted: gradients are kept and summed in bf16
  --fp8-param-gather  # weights travel in FP8
)

# Batch and optimizer.
TRAINING_ARGS=(
  --seq-length 4096
  --micro-batch-size 1
  --global-batch-size 15360
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
  --overlap-param-gather  # weights return while forward computes
  --tp-comm-overlap  # gathers and scatters of tp in pieces beside the products
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
