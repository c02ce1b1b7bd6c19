"""deepseek-v3: tp2 sp pp16 dp64 ep64 on 256 nodes of 8 H100 SXM 80 GB

Written by meshplan export for Megatron-Bridge 067f987d; README.md says why this plan.
"""

import os

import torch.nn.functional as F
from megatron.bridge.models.mla_provider import MLAModelProvider
from megatron.bridge.recipes.gpt.vanilla_gpt import vanilla_gpt_pretrain_config
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import MixedPrecisionConfig, bf16_mixed, fp16_mixed
from megatron.bridge.training.pretrain import pretrain


def pretrain_config():
    """The plan as a configuration; everything else is as pretrain_gpt.py has it."""
    cfg = vanilla_gpt_pretrain_config()
    cfg.model = MLAModelProvider(
        num_layers=61,
        hidden_size=7168,
        ffn_hidden_size=18432,
        num_attention_heads=128,
        vocab_size=129280,  # padded to a multiple of 128 * tp when the model is built
        init_method_std=0.02,
        normalization="RMSNorm",
        layernorm_epsilon=1e-06,
        activation_func=F.silu,
        add_bias_linear=False,
        share_embeddings_and_output_weights=False,
        attention_dropout=0.0,  # Megatron's default is 0.1
        hidden_dropout=0.0,  # Megatron's default is 0.1
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_head_dim=128,
        qk_pos_emb_head_dim=64,
        v_head_dim=128,
        kv_channels=128,
        qk_layernorm=True,
        position_embedding_type="rope",
        rotary_base=10000,
        rope_type="yarn",
        rotary_scaling_factor=40,
        mscale=1,
        mscale_all_dim=1,
        num_moe_experts=256,
        moe_ffn_hidden_size=2048,
        moe_layer_freq=([0]*3+[1]*58),  # 1: a layer with experts
        moe_shared_expert_intermediate_size=2048,
        moe_router_topk=8,
        moe_router_score_function="sigmoid",
        moe_router_topk_scaling_factor=2.5,
        moe_router_num_groups=8,
        moe_router_group_topk=4,
        moe_router_enable_expert_bias=True,
        moe_router_bias_update_rate=0.001,
        moe_router_load_balancing_type="none",
        tensor_model_parallel_size=2,
        sequence_parallel=True,  # divides the tokens between tp regions
        context_parallel_size=1,
        pipeline_model_parallel_size=16,
        num_layers_in_first_pipeline_stage=3,
        num_layers_in_last_pipeline_stage=2,
        expert_model_parallel_size=64,
        expert_tensor_parallel_size=1,  # its default is tp
        recompute_granularity="full",
        recompute_method="block",  # block: the first layers of each virtual stage
        recompute_num_layers=2,
        seq_length=4096,
        moe_token_dispatcher_type="alltoall",  # how tokens travel to their experts
        moe_grouped_gemm=True,  # all experts of a rank in one product
        moe_permute_fusion=True,
        moe_router_dtype="fp32",
        gated_linear_unit=True,
        should_pad_vocab=True,  # to a multiple of 128 * tp
    )
    cfg.train.micro_batch_size = 1
    cfg.train.global_batch_size = 15360
    cfg.optimizer.optimizer = "adam"  # weight decay is decoupled: AdamW
    cfg.optimizer.lr = 0.0003
    cfg.scheduler.lr_decay_style = "cosine"
    cfg.optimizer.min_lr = 3e-05
    cfg.scheduler.lr_warmup_iters = 0
    cfg.optimizer.adam_beta1 = 0.9
    cfg.optimizer.adam_beta2 = 0.95
    cfg.optimizer.adam_eps = 1e-08
    cfg.optimizer.weight_decay = 0.1
    cfg.optimizer.clip_grad = 1
    cfg.ddp.overlap_grad_reduce = True  # buckets are summed while backward computes
    cfg.ddp.overlap_param_gather = True  # weights return while forward computes
    cfg.dataset.seq_length = 4096
    cfg.tokenizer.vocab_size = 129279  # NullTokenizer adds the end of documents
    cfg.ddp.use_distributed_optimizer = True  # ZeRO 1: optimizer state over dp * cp
    cfg.optimizer.use_distributed_optimizer = True
    cfg.scheduler.start_weight_decay = 0.1
    cfg.scheduler.end_weight_decay = 0.1
    cfg.mixed_precision = bf16_mixed()
    cfg.mixed_precision.grad_reduce_in_fp32 = False  # as predicted: gradients in bf16
    cfg.ddp.grad_reduce_in_fp32 = False
    cfg.mixed_precision.fp8 = "hybrid"  # values and weights E4M3, gradients E5M2
    cfg.mixed_precision.fp8_recipe = "tensorwise"  # one scale a tensor
    cfg.mixed_precision.fp8_param_gather = True
    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=True)
    cfg.train.train_iters = int(os.environ.get("TRAIN_ITERS", "1000"))
    cfg.logger.log_interval = 1
    cfg.validation.eval_iters = 0
    if os.environ.get("MOCK_DATA", "0") != "1":
        cfg.dataset.blend = ([os.environ["DATA_PATH"]], None)
        cfg.tokenizer.tokenizer_type = os.environ.get("TOKENIZER_TYPE", "HuggingFaceTokenizer")
        cfg.tokenizer.tokenizer_model = os.environ["TOKENIZER_MODEL"]
    return cfg


if __name__ == "__main__":
    pretrain(pretrain_config(), forward_step)
