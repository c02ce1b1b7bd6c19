"""A plan of meshplan: 30B-A3B on 16 GPUs (pp2 dp8 ep8). README.md says why."""

from pathlib import Path

from torchtitan.components.optimizer import (
    LRSchedulersContainer,
    OptimizersContainer,
    ParamGroupConfig,
)
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models.qwen3 import model_registry
from torchtitan.models.qwen3.config_registry import qwen3_30b_a3b
from torchtitan.trainer import Trainer


def planned() -> Trainer.Config:
    config = qwen3_30b_a3b()
    config.model_spec = model_registry("30B-A3B")
    config.parallelism = ParallelismConfig(
        data_parallel_replicate_degree=1,
        data_parallel_shard_degree=8,
        tensor_parallel_degree=1,
        enable_sequence_parallel=True,
        context_parallel_degree=1,
        expert_parallel_degree=8,
        pipeline_parallel_degree=2,
        pipeline_parallel_schedule="PipelineScheduleSingle",
        pipeline_parallel_schedule_csv=str(Path(__file__).with_name("schedule.csv")),
        num_pp_microbatches=4,
        module_fqns_per_model_part=[
            ["tok_embeddings", "layers.0", "layers.1", "layers.2", "layers.3", "layers.4",
             "layers.5", "layers.6", "layers.7", "layers.8", "layers.9", "layers.10", "layers.11",
             "layers.12", "layers.13", "layers.14", "layers.15", "layers.16", "layers.17",
             "layers.18", "layers.19", "layers.20", "layers.21", "layers.22", "layers.23",
             "layers.24", "layers.25"],
            ["layers.26", "layers.27", "layers.28", "layers.29", "layers.30", "layers.31",
             "layers.32", "layers.33", "layers.34", "layers.35", "layers.36", "layers.37",
             "layers.38", "layers.39", "layers.40", "layers.41", "layers.42", "layers.43",
             "layers.44", "layers.45", "layers.46", "layers.47", "norm", "lm_head"],
        ],
    )
    config.training = TrainingConfig(
        num_tokens_per_microbatch_per_dp_rank=1 * 4096,
        num_tokens_per_train_step=32 * 4096,
        max_context_length=4096,
        max_norm=1.0,
        mixed_precision_param="bfloat16",
        enable_cpu_offload=False,
        disable_cuda_graphs=True,
        steps=config.training.steps,
    )
    config.activation_checkpoint = FullAC.Config()
    config.compile = CompileConfig(enable=True, components=["model", "loss"])
    config.optimizer = OptimizersContainer.Config(
        param_groups=[
            ParamGroupConfig(
                pattern=r".*",
                optimizer_name="AdamW",
                optimizer_kwargs={
                    "lr": 0.0003,
                    "betas": (0.9, 0.95),
                    "eps": 1e-08,
                    "weight_decay": 0.1,
                },
            )
        ]
    )
    config.lr_scheduler = LRSchedulersContainer.Config(
        warmup_steps=0,
        decay_type="cosine",
        min_lr_factor=0.1,
    )
    return config
