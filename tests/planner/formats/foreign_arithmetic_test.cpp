// Numbers that another stack counts in its own way. Expected ones follow from that stack's
// definition, in the comment beside them.
#include <catch2/catch.hpp>

#include "planner/formats/formats_support.hpp"

namespace meshplan::planner::format_tests {
namespace {

using program::Plan;

Plan megatron_plan(int num_layers, const std::string& flags) {
  const std::string script =
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers " + std::to_string(num_layers) +
      " --hidden-size 512 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 "
      "--micro-batch-size 1 --vocab-size 1000 --global-batch-size 64 " +
      flags;
  return read_as("megatron", request_of("run.sh", script)).plan;
}

}  // namespace

TEST_CASE("Megatron-LM's samples are steps times the batch", "[planner][formats]") {
  const Plan plan = megatron_plan(8, "--lr-warmup-samples 6400 --lr-decay-samples 64000");
  CHECK(plan.workload.optimizer.warmup_steps == 100);  // 6400 / 64
  CHECK(plan.workload.optimizer.decay_steps == 1000);  // 64000 / 64
}

TEST_CASE("Megatron-LM's FSDP 2 is ZeRO 3, or 2 where weights stay gathered",
          "[planner][formats]") {
  CHECK(megatron_plan(8, "--use-torch-fsdp2").zero_stage == 3);
  CHECK(megatron_plan(8, "--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward").zero_stage ==
        2);
}

TEST_CASE(
    "Layers of Megatron-LM's virtual stages count embedding and loss where they are accounted",
    "[planner][formats]") {
  const std::string flags =
      "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 "
      "--account-for-embedding-in-pipeline-split ";
  // (14 + 2) / 4 stages / 2 layers
  const Plan both = megatron_plan(14, flags + "--account-for-loss-in-pipeline-split");
  CHECK(both.parallel.vpp == 2);
  CHECK(resolved_layers_per_stage(both) == std::vector<int>{1, 2, 2, 2, 2, 2, 2, 1});
  const Plan embedding = megatron_plan(15, flags);  // (15 + 1) / 4 / 2
  CHECK(embedding.parallel.vpp == 2);
  CHECK(resolved_layers_per_stage(embedding) == std::vector<int>{1, 2, 2, 2, 2, 2, 2, 2});
}

TEST_CASE("torchtitan takes layers from the first stage and from the last as the file says",
          "[formats][torchtitan]") {
  const std::string text = R"(
[model]
name = "llama3"
flavor = "70B"
[parallelism]
pipeline_parallel_degree = 4
pipeline_parallel_first_stage_less_layers = 0
pipeline_parallel_last_stage_less_layers = 2
)";
  // generate_llm_fqn_per_model_part: 80 + 0 + 2 over 4 are 21, 21, 20, 20, less what the ends hold.
  const Plan plan = read_as("torchtitan", request_of("train.toml", text, "", 8)).plan;
  CHECK(plan.layers_per_stage == std::vector<int>{21, 21, 20, 18});
}

TEST_CASE("accelerate shards over dp_shard and cp together", "[formats][accelerate]") {
  const std::string text = R"(
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
mixed_precision: bf16
num_processes: 16
parallelism_config:
  parallelism_config_cp_size: 2
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 4
)";
  // parallelism_config.py, dp_shard_cp: one mesh of 4 * 2 ranks, of which there are 2 copies.
  const Plan plan = read_as("accelerate-fsdp", request_of("a.yaml", text, "llama3-8b")).plan;
  CHECK(plan.parallel.dp == 8);
  CHECK(plan.parallel.cp == 2);
  CHECK(plan.zero_shard_group == 8);
}

TEST_CASE("FSDP 1 shards gradients and optimizer state within a node by HYBRID_SHARD_ZERO2",
          "[formats][accelerate]") {
  const std::string text =
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD_ZERO2\n"
      "mixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n";
  const Plan plan = read_as("accelerate-fsdp", request_of("a.yaml", text, "llama3-8b")).plan;
  CHECK(plan.zero_stage == 2);
  CHECK(plan.zero_shard_group == 8);  // 16 processes of 2 machines
}

}  // namespace meshplan::planner::format_tests
