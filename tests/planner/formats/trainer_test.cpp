#include <catch2/catch.hpp>

#include "formats/text/hugging_face_models.hpp"
#include "models/adapters.hpp"
#include "models/counts.hpp"
#include "planner/formats/formats_support.hpp"
#include "program/checks/check.hpp"

namespace meshplan::planner::format_tests {
namespace {

using Catch::Matchers::Contains;
using program::AttentionBackend;
using program::ContextMethod;
using program::LossKernel;
using program::RecomputeKind;
using program::StateDType;

constexpr const char* kFactory = R"(### model
model_name_or_path: Qwen/Qwen3-4B-Instruct-2507
### method
stage: sft
do_train: true
finetuning_type: full
deepspeed: examples/deepspeed/zero3.json
### dataset
template: qwen3
cutoff_len: 2048
### train
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 1.0e-5
bf16: true
resume_from_checkpoint: null
)";

constexpr const char* kAutoZero3 = R"({
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 3, "overlap_comm": false, "reduce_bucket_size": "auto"}
})";

constexpr const char* kAxolotl = R"(base_model: meta-llama/Llama-3.1-8B
plugins:
  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin
datasets:
  - path: tatsu-lab/alpaca
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_torch_8bit
learning_rate: 2e-5
bf16: auto
gradient_checkpointing: true
attn_implementation: flash_attention_2
fsdp_version: 2
fsdp_config:
  offload_params: false
  reshard_after_forward: true
)";

ImportRequest factory_request(const std::string& text, std::optional<int> ranks = 8) {
  ImportRequest request = request_of("examples/train_full/full.yaml", text, "", ranks);
  request.open = [](const std::string& path) -> std::optional<std::string> {
    if (path == "examples/deepspeed/zero3.json") return kAutoZero3;
    if (path == "examples/fsdp2.yaml")
      return "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nnum_processes: 4\n";
    return std::nullopt;
  };
  return request;
}

ImportedPlan read_factory(const std::string& text, std::optional<int> ranks = 8) {
  return read_as("llama-factory", factory_request(text, ranks));
}

std::string factory_error(const std::string& text, std::optional<int> ranks = 8) {
  return read_error("llama-factory", factory_request(text, ranks));
}

ImportedPlan read_axolotl_yaml(const std::string& text, std::optional<int> ranks = 8) {
  return read_as("axolotl", request_of("train.yml", text, "", ranks));
}

std::string axolotl_error(const std::string& text, std::optional<int> ranks = 8) {
  return read_error("axolotl", request_of("train.yml", text, "", ranks));
}

}  // namespace

TEST_CASE("LLaMA-Factory's YAML with DeepSpeed fills in its auto", "[formats][trainer]") {
  CHECK(recognized_format("full.yaml", kFactory) == &format_of("llama-factory"));
  const ImportedPlan imported = read_factory(kFactory);
  const program::Plan& plan = imported.plan;
  CHECK(plan.model.hidden_size == 2560);
  CHECK(plan.model.max_positions == 262144);
  CHECK(plan.workload.seq_len == 2048);
  CHECK(plan.workload.global_batch_size == 64);
  CHECK(plan.micro_batch_size == 2);
  CHECK(plan.workload.precision == DType::BF16);
  CHECK(plan.workload.optimizer.learning_rate == 1e-5);
  CHECK(plan.workload.optimizer.beta2 == 0.999);
  CHECK(plan.parallel.dp == 8);
  CHECK(plan.zero_stage == 3);
  CHECK(plan.bucket_bytes == 2560LL * 2560 * 2);
  CHECK(plan.recompute.kind == RecomputeKind::Full);
  CHECK(program::check(plan).empty());
  CHECK(mentions(imported.assumptions, "qwen3-4b-2507"));
  CHECK_FALSE(mentions(imported.ignored, "resume_from_checkpoint"));
  CHECK_THAT(factory_error(kFactory, std::nullopt), Contains("give it with --gpus"));
  CHECK_THAT(factory_error(replaced(kFactory, "zero3.json", "zero9.json")),
             Contains("deepspeed_config_file: expected a file"));
}

TEST_CASE("LLaMA-Factory without DeepSpeed is FSDP or DDP", "[formats][trainer]") {
  const std::string plain = replaced(kFactory, "deepspeed: examples/deepspeed/zero3.json\n", "");
  const ImportedPlan ddp = read_factory(plain + "disable_gradient_checkpointing: true\n");
  CHECK(ddp.plan.zero_stage == 0);
  CHECK(ddp.plan.recompute.kind == RecomputeKind::None);
  CHECK(mentions(ddp.assumptions, "data parallel (PyTorch's DDP)"));
  const ImportedPlan fsdp =
      read_factory(plain + "fsdp: [shard_grad_op, auto_wrap]\nfp8: true\nfp8_backend: torchao\n");
  CHECK(fsdp.plan.zero_stage == 2);
  CHECK(program::precision_of(fsdp.plan.workload) == program::Precision::Fp8);
  CHECK(fsdp.plan.stack.settings.fp8_scaling == program::Fp8Scaling::Tensorwise);
  const ImportedPlan commented = read_factory(
      "# accelerate launch --config_file examples/fsdp2.yaml src/train.py full.yaml\n" + plain);
  CHECK(commented.plan.zero_stage == 3);
  CHECK(commented.plan.parallel.dp == 8);
  CHECK(mentions(commented.assumptions, "as a comment of the file has it"));
  const ImportedPlan megatron =
      read_factory(plain +
                   "tensor_model_parallel_size: 2\npipeline_model_parallel_size: 2\n"
                   "sequence_parallel: true\nuse_distributed_optimizer: true\n");
  CHECK(program::to_string(megatron.plan.parallel) == "tp2 sp pp2 dp2");
  CHECK(megatron.plan.stack.software == "megatron-core");
}

TEST_CASE("LLaMA-Factory's second generation has its own keys", "[formats][trainer]") {
  constexpr const char* kSecond = R"(model: Qwen/Qwen3-0.6B
model_class: llm
dist_config:
  name: fsdp2
train_dataset: data/demo.yaml
micro_batch_size: 2
cutoff_len: 1024
learning_rate: 1.0e-4
)";
  CHECK(recognized_format("v1.yaml", kSecond) == &format_of("llama-factory"));
  const ImportedPlan imported = read_factory(kSecond);
  CHECK(imported.plan.zero_stage == 3);
  CHECK(imported.plan.workload.precision == DType::BF16);
  CHECK(imported.plan.workload.global_batch_size == 16);
  CHECK(imported.plan.recompute.kind == RecomputeKind::Full);
  const ImportedPlan ulysses =
      read_factory(std::string(kSecond) + "cp_size: 2\ncp_mode: ulysses\n");
  CHECK(program::to_string(ulysses.plan.parallel) == "cp2 dp4");
  CHECK(ulysses.plan.context_parallel == ContextMethod::Ulysses);
  const ImportedPlan frozen = read_factory(std::string(kSecond) + "peft_config:\n  name: freeze\n");
  CHECK(frozen.plan.frozen == std::vector<std::string>{"*", "!layers.26-27"});
  CHECK(program::check(frozen.plan).empty());
  CHECK_THAT(factory_error(std::string(kSecond) + "optim_config:\n  name: muon\n"),
             Contains("optim_config.name: 'muon'"));
}

TEST_CASE("What LLaMA-Factory does beside plain training is refused", "[formats][trainer]") {
  CHECK_THAT(factory_error(replaced(kFactory, "stage: sft", "stage: dpo")),
             Contains("stage: dpo runs a second, frozen model"));
  CHECK_THAT(factory_error(replaced(kFactory, "do_train: true", "do_predict: true")),
             Contains("trains nothing, but predicts"));
  CHECK_THAT(factory_error(replaced(kFactory, "finetuning_type: full", "finetuning_type: oft")),
             Contains("finetuning_type: 'oft': adapters of a plan are LoRA's; nearest: lora"));
  CHECK_THAT(factory_error(std::string(kFactory) + "use_galore: true\n"),
             Contains("use_galore: gradients are projected"));
  CHECK_THAT(factory_error(replaced(kFactory, "Qwen/Qwen3-4B-Instruct-2507", "tiiuae/falcon-7b")),
             Contains("model_name_or_path: no preset has the model 'tiiuae/falcon-7b'") &&
                 Contains("--model FILE"));
  CHECK_THAT(
      factory_error(replaced(replaced(kFactory, "finetuning_type: full", "finetuning_type: lora"),
                             "Qwen3-4B-Instruct-2507", "Qwen3-8B-AQLM-2Bit")),
      Contains("weights of few bits"));
  CHECK_THAT(factory_error(replaced(kFactory, "Qwen3-4B-Instruct-2507", "Qwen3-8B-AWQ")),
             Contains("weights of few bits"));
}

TEST_CASE("LoRA is the model's adapters over frozen weights", "[formats][trainer]") {
  const ImportedPlan factory = read_factory(
      replaced(kFactory, "finetuning_type: full", "finetuning_type: lora\nlora_rank: 8"));
  REQUIRE(factory.plan.model.adapters);
  CHECK(factory.plan.model.adapters->rank == 8);
  CHECK(factory.plan.model.adapters->alpha == 16);
  CHECK(factory.plan.model.adapters->modules ==
        std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                 "down_proj"});
  CHECK(factory.plan.frozen == models::all_but_adapters());
  CHECK(factory.plan.stack.settings.shard_frozen == true);
  CHECK(program::check(factory.plan).empty());
  const ImportedPlan axolotl = read_axolotl_yaml(
      std::string(kAxolotl) +
      "adapter: qlora\nload_in_4bit: true\nlora_r: 32\nlora_alpha: 16\nlora_dropout: 0.05\n"
      "lora_target_modules:\n  - q_proj\n  - v_proj\nlora_modules_to_save: [lm_head]\n");
  REQUIRE(axolotl.plan.model.adapters);
  CHECK(axolotl.plan.model.adapters->modules == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(axolotl.plan.stack.settings.frozen_storage == program::FrozenStorage::Nf4);
  CHECK(axolotl.plan.frozen.back() == "!head");
  CHECK(mentions(axolotl.assumptions, "dropout of adapters (0.05)"));
  CHECK(program::check(axolotl.plan).empty());
  CHECK_THAT(
      axolotl_error(replaced(kAxolotl, "meta-llama/Llama-3.1-8B", "mistralai/Mixtral-8x7B-v0.1") +
                    "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"),
      Contains("which of the experts have adapters"));
}

TEST_CASE("axolotl's YAML over FSDP 2", "[formats][trainer]") {
  CHECK(recognized_format("train.yml", kAxolotl) == &format_of("axolotl"));
  const ImportedPlan imported = read_axolotl_yaml(kAxolotl);
  const program::Plan& plan = imported.plan;
  CHECK(plan.model.name == "llama3.1-8b");
  CHECK(plan.zero_stage == 3);
  CHECK(plan.parallel.dp == 8);
  CHECK(plan.workload.global_batch_size == 64);
  CHECK(plan.workload.seq_len == 4096);
  CHECK(plan.recompute.kind == RecomputeKind::Full);
  CHECK(plan.stack.settings.attention == AttentionBackend::Flash);
  CHECK(plan.stack.settings.loss == LossKernel::Chunked);
  CHECK(plan.stack.settings.first_moment_dtype == StateDType::Fp8);
  CHECK(mentions(imported.assumptions, "sample_packing"));
  CHECK(program::check(plan).empty());
}

TEST_CASE("axolotl's mesh is that of its distributed.py", "[formats][trainer]") {
  const std::string mesh = std::string(kAxolotl) +
                           "tensor_parallel_size: 2\ncontext_parallel_size: 2\ndp_shard_size: 2\n";
  const ImportedPlan imported = read_axolotl_yaml(mesh, std::nullopt);
  CHECK(program::to_string(imported.plan.parallel) == "tp2 cp2 dp2");
  CHECK(imported.plan.context_parallel == ContextMethod::AllGather);
  const ImportedPlan copies = read_axolotl_yaml(mesh, 16);
  CHECK(copies.plan.parallel.dp == 4);
  CHECK(copies.plan.zero_shard_group == 4);
  CHECK_THAT(axolotl_error(mesh, 12), Contains("num_processes: 12 is not"));
}

TEST_CASE("axolotl without FSDP keeps its state in 16 bits", "[formats][trainer]") {
  const std::string text =
      replaced(replaced(kAxolotl,
                        "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n"
                        "  reshard_after_forward: true\n",
                        ""),
               "adamw_torch_8bit", "adamw_torch_fused");
  const ImportedPlan imported = read_axolotl_yaml(text);
  CHECK(imported.plan.zero_stage == 0);
  CHECK(imported.plan.stack.settings.gradient_dtype == StateDType::BF16);
  CHECK(imported.plan.stack.settings.second_moment_dtype == StateDType::BF16);
  CHECK(mentions(imported.assumptions, "copy of the weights in fp32"));
  ImportRequest request = request_of("train.yml", text, "", 8);
  request.arguments = "--gradient_accumulation_steps 1";
  CHECK(read_as("axolotl", request).plan.workload.global_batch_size == 16);
}

TEST_CASE("What axolotl does beside plain training is refused", "[formats][trainer]") {
  CHECK_THAT(axolotl_error(std::string(kAxolotl) + "rl: dpo\n"), Contains("rl: \"dpo\" compares"));
  CHECK_THAT(axolotl_error(std::string(kAxolotl) +
                           "adapter: lora\nlora_r: 16\nlora_target_modules: [q_proj, Wqkv]\n"),
             Contains("adapters on 'Wqkv', of which the model has q_proj, k_proj"));
  CHECK_THAT(axolotl_error(std::string(kAxolotl) + "load_in_4bit: true\n"),
             Contains("goes with an adapter alone"));
  CHECK_THAT(axolotl_error(replaced(kAxolotl, "adamw_torch_8bit", "muon")),
             Contains("optimizer 'muon'") && Contains("nearest: adamw_torch"));
  CHECK_THAT(axolotl_error(std::string(kAxolotl) + "unfrozen_parameters:\n  - ^lm_head.weight$\n"),
             Contains("unfrozen_parameters"));
}

TEST_CASE("Names of checkpoints say their shape", "[formats][models]") {
  const auto name_of = [](const char* checkpoint) {
    const auto model = model_of_checkpoint(checkpoint);
    return model ? model->spec.name : std::string("none");
  };
  CHECK(name_of("meta-llama/Meta-Llama-3-8B-Instruct") == "llama3-8b");
  CHECK(name_of("NousResearch/Llama-2-7b-hf") == "llama2-7b");
  CHECK(name_of("/models/Qwen2.5-7B/") == "qwen2.5-7b");
  CHECK(name_of("mistralai/Mistral-7B-Instruct-v0.3") == "mistral-7b-v0.3");
  CHECK(name_of("mistralai/Mistral-7B-v0.1") == "mistral-7b");
  CHECK(name_of("Qwen/Qwen3-4B-Base") == "qwen3-4b");
  CHECK(name_of("Qwen/Qwen2.5-VL-7B-Instruct") == "none");
  CHECK(name_of("meta-llama/Llama-3.2-11B-Vision-Instruct") == "none");
  CHECK(name_of("") == "none");
  CHECK(model_of_checkpoint("TechxGenus/Meta-Llama-3-8B-Instruct-AWQ")->is_quantized);
  const auto opt = model_of_checkpoint("facebook/opt-1.3b");
  REQUIRE(opt);
  CHECK(models::count_parameters(models::build_graph(opt->spec)).total == 1'315'758'080);
  const auto stable = model_of_checkpoint("stabilityai/stablelm-2-1_6b");
  REQUIRE(stable);
  CHECK(models::count_parameters(models::build_graph(stable->spec)).total == 1'644'515'328);
  const auto phi = model_of_checkpoint("microsoft/Phi-3-mini-4k-instruct");
  REQUIRE(phi);
  CHECK(models::count_parameters(models::build_graph(phi->spec)).total == 3'821'079'552);
  for (const char* each :
       {"codellama-13b", "open_llama_3b_v2", "yi-34b", "magistral-small-2506",
        "qwen3-235b-a22b-2507", "opt-66b", "xgen-7b-8k-base", "ministral-8b-instruct-2410"})
    CHECK(model_of_checkpoint(each));
}

TEST_CASE("Scripts that start a Trainer are read as its configuration", "[formats][trainer]") {
  const auto script = [](const std::string& text, std::optional<int> ranks = {}) {
    ImportRequest request = factory_request(kFactory, ranks);
    request.files["examples/train_full/run.sh"] = text;
    request.main = "examples/train_full/run.sh";
    CHECK(recognized_format(request.main, text) == &format_of("trainer-script"));
    return request;
  };
  constexpr const char* kChat = R"(#!/bin/bash
OUTPUT=$1
ZERO_STAGE=$2
if [ "$ZERO_STAGE" == "" ]; then
    ZERO_STAGE=3
fi
deepspeed --num_gpus 4 main.py --data_path a/rm-static b/rlhf-reward-datasets \
   --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 4 \
   --max_seq_len 512 --gradient_accumulation_steps 2 --gradient_checkpointing \
   --zero_stage $ZERO_STAGE --offload --deepspeed --output_dir $OUTPUT &> $OUTPUT/training.log
)";
  const ImportedPlan chat = read_as("trainer-script", script(kChat));
  CHECK(chat.plan.model.name == "llama2-7b");
  CHECK(chat.plan.parallel.dp == 4);
  CHECK(chat.plan.zero_stage == 3);
  CHECK(chat.plan.offload_parameters);
  CHECK(chat.plan.workload.precision == DType::F16);
  CHECK(chat.plan.workload.seq_len == 512);
  CHECK(chat.plan.workload.global_batch_size == 32);
  CHECK(chat.plan.recompute.kind == RecomputeKind::Full);
  CHECK(mentions(chat.assumptions, "started without arguments"));
  ImportRequest second = script(kChat);
  second.arguments = "out 2";
  CHECK(read_as("trainer-script", second).plan.zero_stage == 2);

  const ImportedPlan yaml = read_as(
      "trainer-script", script("llamafactory-cli train examples/train_full/full.yaml\n", 8));
  CHECK(yaml.plan.zero_stage == 3);
  CHECK(yaml.plan.workload.global_batch_size == 64);
  const ImportedPlan trl = read_as(
      "trainer-script",
      script("accelerate launch --num_processes 2 run_clm.py --model_name_or_path gpt2-medium "
             "--do_train --fp16 --per_device_train_batch_size 3 --block_size 512\n"));
  CHECK(trl.plan.model.name == "gpt2-medium");
  CHECK(trl.plan.parallel.dp == 2);
  CHECK(trl.plan.micro_batch_size == 3);
  CHECK(trl.plan.recompute.kind == RecomputeKind::None);
  CHECK(trl.plan.workload.precision == DType::F16);
  CHECK_THAT(
      read_error("trainer-script", script("python dpo.py --model_name_or_path gpt2 --bf16\n", 2)),
      Contains("dpo compares answers"));
  CHECK_THAT(
      read_error("trainer-script", script("deepspeed main.py --model_name_or_path gpt2 --lora_dim "
                                          "128 --lora_module_name decoder.layers. "
                                          "--zero_stage 2 --deepspeed\n",
                                          2)),
      Contains("--lora_dim without --only_optimize_lora"));
  CHECK_THAT(read_error("trainer-script",
                        script("python run_generation.py --model_name_or_path gpt2 --fp16\n", 2)),
             Contains("run_generation.py, which generates text"));
  CHECK_THAT(read_error("trainer-script", script("python look.py --model_name_or_path gpt2\n", 2)),
             Contains("no option is of one"));
  CHECK_THAT(read_error("trainer-script",
                        script("python sft.py --do_train --model_name_or_path $MODEL\n", 2)),
             Contains("--model_name_or_path: MODEL is not set"));
}

TEST_CASE("A model of nanotron that is no Llama is refused", "[formats][nanotron]") {
  CHECK_THAT(
      read_error("nanotron", request_of("c.yaml",
                                        "model:\n  model_config:\n    is_mamba_config: true\n"
                                        "    d_model: 8\nparallelism:\n  dp: 1\n")),
      Contains("is_mamba_config: expected is_llama_config or is_qwen2_config"));
}

TEST_CASE("accelerate's GPUs are the given ones, and its DeepSpeed may be Ulysses",
          "[formats][accelerate]") {
  const std::string text =
      "distributed_type: DEEPSPEED\nnum_processes: 4\nmixed_precision: bf16\n"
      "deepspeed_config:\n  zero_stage: 3\nparallelism_config:\n  parallelism_config_sp_size: 2\n";
  const ImportedPlan imported =
      read_as("accelerate-deepspeed", request_of("config.yaml", text, "llama3-8b", 16));
  CHECK(program::to_string(imported.plan.parallel) == "cp2 dp8");
  CHECK(imported.plan.context_parallel == ContextMethod::Ulysses);
  CHECK(imported.plan.workload.precision == DType::BF16);
  CHECK(mentions(imported.assumptions, "num_processes = 16 (the GPUs given; the file says 4)"));
}

}  // namespace meshplan::planner::format_tests
