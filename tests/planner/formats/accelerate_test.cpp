#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "planner/formats/formats_support.hpp"

namespace meshplan::planner::format_tests {
namespace {

using Catch::Matchers::Contains;
using program::ContextMethod;
using program::Plan;
using program::RecomputeKind;

// The shape of what `accelerate config` writes.
constexpr const char* kFsdp2 = R"(
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_version: 2
machine_rank: 0
mixed_precision: bf16
num_machines: 2
num_processes: 16
parallelism_config:
  parallelism_config_cp_size: 1
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 4
  parallelism_config_tp_size: 2
use_cpu: false
)";

constexpr const char* kFsdp1 = R"(
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_offload_params: true
mixed_precision: bf16
num_machines: 2
num_processes: 16
)";

constexpr const char* kPlugin = R"(
distributed_type: MEGATRON_LM
megatron_lm_config:
  megatron_lm_gradient_clipping: 1.0
  megatron_lm_num_micro_batches: 8
  megatron_lm_pp_degree: 2
  megatron_lm_recompute_activations: true
  megatron_lm_sequence_parallelism: true
  megatron_lm_tp_degree: 4
  megatron_lm_use_distributed_optimizer: true
mixed_precision: bf16
num_machines: 2
num_processes: 16
)";

ImportedPlan read_yaml(const std::string& text) {
  return read_as("accelerate-fsdp", request_of("config.yaml", text, "llama3-8b"));
}

std::string accelerate_error(const std::string& text) {
  return read_error("accelerate-fsdp", request_of("config.yaml", text, "llama3-8b"));
}

}  // namespace

TEST_CASE("accelerate's FSDP2 with a mesh is hybrid ZeRO 3", "[formats][accelerate]") {
  const ImportedPlan imported = read_yaml(kFsdp2);
  CHECK(program::to_string(imported.plan.parallel) == "tp2 dp8");
  CHECK(imported.plan.zero_stage == 3);
  CHECK(imported.plan.zero_shard_group == 4);
  CHECK(imported.plan.recompute.kind == RecomputeKind::Full);
  CHECK(imported.plan.workload.precision == DType::BF16);
  CHECK(mentions(imported.assumptions, "workload.seq_len = 4096"));
  CHECK(mentions(imported.assumptions, "micro_batch_size = 1"));
  CHECK(mentions(imported.ignored, "downcast_bf16 = \"no\""));
}

TEST_CASE("FSDP 1's strategies are ZeRO stages", "[formats][accelerate]") {
  CHECK(read_yaml(kFsdp1).plan.zero_stage == 2);
  CHECK(read_yaml(kFsdp1).plan.offload_optimizer);
  CHECK(read_yaml(replaced(kFsdp1, "SHARD_GRAD_OP", "1")).plan.zero_stage == 3);
  CHECK(read_yaml(replaced(kFsdp1, "SHARD_GRAD_OP", "NO_SHARD")).plan.zero_stage == 0);
  const Plan hybrid = read_yaml(replaced(kFsdp1, "SHARD_GRAD_OP", "HYBRID_SHARD")).plan;
  CHECK(hybrid.zero_stage == 3);
  CHECK(hybrid.zero_shard_group == 8);
  CHECK_THAT(accelerate_error(replaced(kFsdp1, "SHARD_GRAD_OP", "SHARD_GRADS")),
             Contains("did you mean 'SHARD_GRAD_OP'"));
}

TEST_CASE("The Megatron-LM plugin's degrees make a plan", "[formats][accelerate]") {
  const ImportedPlan imported = read_yaml(kPlugin);
  CHECK(program::to_string(imported.plan.parallel) == "tp4 sp pp2 dp2");
  CHECK(imported.plan.num_microbatches() == 8);
  CHECK(imported.plan.zero_stage == 1);
  CHECK(imported.plan.recompute.kind == RecomputeKind::Selective);
  CHECK(imported.plan.stack.software == "megatron-core");
  CHECK(mentions(imported.assumptions, "takes 2 where the file has no"));
  const std::string last =
      replaced(kPlugin, "megatron_lm_pp_degree: 2",
               "megatron_lm_pp_degree: 2\n  megatron_lm_decoder_last_pipeline_num_layers: 15");
  CHECK(read_yaml(last).plan.layers_per_stage == std::vector<int>{17, 15});
}

TEST_CASE("A DeepSpeed file under accelerate is read with it", "[formats][accelerate]") {
  const std::string yaml =
      "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\n"
      "deepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 4\n"
      "  offload_optimizer_device: cpu\n";
  const ImportedPlan own = read_yaml(yaml);
  CHECK(own.plan.zero_stage == 2);
  CHECK(own.plan.num_microbatches() == 4);
  CHECK(own.plan.offload_optimizer);
  ImportRequest request =
      request_of("a.yaml",
                 "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n"
                 "  deepspeed_config_file: conf/zero3.json\n",
                 "llama3-8b");
  CHECK_THAT(read_error("accelerate-deepspeed", request), Contains("a file that is beside this"));
  request.files["zero3.json"] =
      R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3},
          "train_micro_batch_size_per_gpu": 2, "odd": 1})";
  const ImportedPlan file = read_as("accelerate-deepspeed", request);
  CHECK(file.plan.zero_stage == 3);
  CHECK(file.plan.parallel.dp == 8);
  CHECK(mentions(file.ignored, "conf/zero3.json: odd = 1"));
}

TEST_CASE("Arguments of the launch script complete accelerate's file", "[formats][accelerate]") {
  ImportRequest request = request_of("config.yaml", kFsdp1, "llama3-8b");
  request.files["run.sh"] =
      "accelerate launch --config_file config.yaml train.py --per_device_train_batch_size=4 \\\n"
      "  --gradient_accumulation_steps 2 --max_seq_length 2048 --learning_rate $LR\n";
  const ImportedPlan imported = read_as("accelerate-fsdp", request);
  CHECK(imported.plan.micro_batch_size == 4);
  CHECK(imported.plan.workload.global_batch_size == 128);
  CHECK(imported.plan.workload.seq_len == 2048);
  CHECK(mentions(imported.assumptions, "--learning_rate"));
  request.files["run.sh"] = "python train.py -c config.yaml --per_device_train_batch_size many\n";
  CHECK_THAT(read_error("accelerate-fsdp", request),
             Contains("run.sh:1: --per_device_train_batch_size many: expected an integer"));
}

TEST_CASE("Degrees of accelerate's file must make its processes", "[formats][accelerate]") {
  CHECK_THAT(accelerate_error(replaced(kFsdp2, "tp_size: 2", "tp_size: 3")),
             Contains("num_processes: 16 is not") && Contains("= 24"));
  CHECK_THAT(accelerate_error(replaced(kPlugin, "tp_degree: 4", "tp_degree: 5")),
             Contains("num_processes: 16 is not divisible by tp_degree(5)"));
  CHECK_THAT(accelerate_error(replaced(kFsdp2, "distributed_type: FSDP", "distributed_type: XLA")),
             Contains("distributed_type: unknown value 'XLA'"));
}

TEST_CASE("What accelerate has no words for is refused", "[formats][accelerate]") {
  const auto error = [](const std::string& format, auto change) {
    Plan plan = plan_of("llama3-8b");
    plan.zero_stage = format == "accelerate-fsdp" ? 3 : 1;
    if (format == "accelerate-megatron") plan.recompute.kind = RecomputeKind::Full;
    change(plan);
    return write_error(format, plan);
  };
  for (const char* format : {"accelerate-fsdp", "accelerate-megatron", "accelerate-deepspeed"})
    CHECK(error(format, [](Plan&) {}).empty());
  CHECK_THAT(error("accelerate-fsdp", [](Plan& p) { p.parallel.pp = 2; }),
             Contains("parallel.pp = 2") && Contains("accelerate-megatron"));
  CHECK_THAT(error("accelerate-fsdp", [](Plan& p) { p.zero_stage = 1; }),
             Contains("zero_stage = 1"));
  CHECK_THAT(error("accelerate-fsdp",
                   [](Plan& p) {
                     p.parallel.cp = 2;
                     p.context_parallel = ContextMethod::Ulysses;
                   }),
             Contains("context_parallel = ulysses"));
  CHECK_THAT(error("accelerate-megatron", [](Plan& p) { p.recompute = {}; }),
             Contains("recompute.kind = none"));
  CHECK_THAT(error("accelerate-megatron",
                   [](Plan& p) {
                     p.parallel.pp = 4;
                     p.layers_per_stage = {7, 9, 8, 8};
                   }),
             Contains("layers_per_stage = [7, 9, 8, 8]"));
}

}  // namespace meshplan::planner::format_tests
