"""A plan of meshplan: 70B on 256 GPUs (tp8 sp pp4 vpp2 dp8). README.md says why."""

from torchtitan.components.optimizer import (
    LRSchedulersContainer,
    OptimizersContainer,
    ParamGroupConfig,
)
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import SelectiveAC
from torchtitan.models.llama3 import model_registry
from torchtitan.models.llama3.config_registry import llama3_70b
from torchtitan.trainer import Trainer


def planned() -> Trainer.Config:
    config = llama3_70b()
    config.model_spec = model_registry("70B")
    config.parallelism = ParallelismConfig(
        data_parallel_replicate_degree=2,
        data_parallel_shard_degree=4,
        tensor_parallel_degree=8,
        enable_sequence_parallel=True,
        context_parallel_degree=1,
        expert_parallel_degree=1,
        pipeline_parallel_degree=4,
        pipeline_parallel_schedule="Interleaved1F1B",
        num_pp_microbatches=64,
        pipeline_parallel_layers_per_stage=10,
        pipeline_parallel_first_stage_less_layers=0,
        pipeline_parallel_last_stage_less_layers=0,
    )
    config.training = TrainingConfig(
        num_tokens_per_microbatch_per_dp_rank=1 * 8192,
        num_tokens_per_train_step=512 * 8192,
        max_context_length=8192,
        max_norm=1.0,
        mixed_precision_param="bfloat16",
        enable_cpu_offload=False,
        disable_cuda_graphs=True,
        steps=config.training.steps,
    )
    config.activation_checkpoint = SelectiveAC.Config()
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
        warmup_steps=200,
        decay_type="cosine",
        min_lr_factor=0.1,
    )
    return config
