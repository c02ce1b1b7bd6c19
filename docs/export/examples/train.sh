#!/usr/bin/env bash
deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed ds_config.json --bf16 True \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --gradient_checkpointing True \
  --learning_rate 2e-5 --lr_scheduler_type cosine --warmup_steps 100 --max_seq_length 4096
