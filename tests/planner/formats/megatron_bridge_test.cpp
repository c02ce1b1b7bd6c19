#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "models/adapters.hpp"
#include "planner/formats/formats_support.hpp"

namespace meshplan::planner::format_tests {
namespace {

using Catch::Matchers::Contains;

// In the form of Megatron-Bridge's recipes: a common function, a model of the hub, and what a
// recipe changes.
constexpr const char* kBridgeCommon = R"(
import os
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.bridge.training.config import ConfigContainer, TrainingConfig, OptimizerConfig

def _adam(max_lr=3e-4, adam_beta2=0.95):
    optimizer = OptimizerConfig(optimizer="adam", lr=max_lr, adam_beta2=adam_beta2,
                                use_distributed_optimizer=True)
    return optimizer, SchedulerConfig(start_weight_decay=0.033, end_weight_decay=0.033)

def _pretrain_common() -> ConfigContainer:
    folder = os.path.join(os.getcwd(), "runs")
    optimizer, scheduler = _adam()
    return ConfigContainer(
        model=None,
        train=TrainingConfig(global_batch_size=32, micro_batch_size=2),
        optimizer=optimizer,
        scheduler=scheduler,
        ddp=DistributedDataParallelConfig(overlap_grad_reduce=True, grad_reduce_in_fp32=True),
        dataset=GPTDatasetConfig(seq_length=4096),
        tokenizer=TokenizerConfig(tokenizer_type="HuggingFaceTokenizer",
                                  use_tokenizer_vocab_size=True),
        comm_overlap=None,
        mixed_precision="bf16_mixed",
        peft=None,
    )
)";

constexpr const char* kBridgeHeader = R"(
import torch
from megatron.bridge import AutoBridge
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.mixed_precision import bf16_with_fp8_current_scaling_mixed
from .common import _pretrain_common

)";

ImportedPlan import_recipe(const std::string& body, std::optional<int> ranks = 64,
                           std::optional<std::string> arguments = std::nullopt) {
  ImportRequest request{.main = "recipes/mine.py:recipe", .ranks = ranks};
  request.files["recipes/mine.py"] = kBridgeHeader + body;
  request.arguments = std::move(arguments);
  request.open = [](const std::string& path) -> std::optional<std::string> {
    if (path == "recipes/common.py") return kBridgeCommon;
    return std::nullopt;
  };
  return format_of("megatron-bridge").read(request);
}

std::string bridge_refusal(const std::string& body, std::optional<int> ranks = 64) {
  try {
    import_recipe(body, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kBridgeLlama = R"(
def recipe():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-70B").get_model_config()
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.virtual_pipeline_model_parallel_size = 5
    cfg.model.sequence_parallel = True
    cfg.model.seq_length = 8192
    cfg.dataset.seq_length = 8192
    cfg.train.global_batch_size = 256
    cfg.train.micro_batch_size = 1
    cfg.tokenizer.use_tokenizer_vocab_size = False
    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=True)
    cfg.model.recompute_granularity = "full"
    cfg.model.recompute_method = "block"
    cfg.model.recompute_num_layers = 2
)";

}  // namespace

TEST_CASE("A recipe of Megatron-Bridge becomes the plan of its fields", "[formats][bridge]") {
  const ImportedPlan imported = import_recipe(std::string(kBridgeLlama) + "    return cfg\n");
  const program::Plan& plan = imported.plan;
  CHECK(plan.model.name == "llama3-70b");
  CHECK(plan.parallel.tp == 4);
  CHECK(plan.parallel.sp);
  CHECK(plan.parallel.pp == 4);
  CHECK(plan.parallel.vpp == 5);
  CHECK(plan.parallel.dp == 4);
  CHECK(plan.workload.seq_len == 8192);
  CHECK(plan.workload.global_batch_size == 256);
  CHECK(plan.micro_batch_size == 1);
  CHECK(plan.zero_stage == 1);
  CHECK(plan.workload.precision == DType::BF16);
  CHECK(plan.recompute.kind == program::RecomputeKind::Full);
  CHECK(plan.recompute.num_layers == 2);
  CHECK(plan.workload.optimizer.weight_decay == 0.033);
  CHECK(plan.stack.software == "megatron-core");
  CHECK(plan.stack.settings.overlap_tp == true);
  CHECK(plan.stack.settings.overlap_p2p == true);
  CHECK(plan.stack.settings.gradient_dtype == program::StateDType::F32);
}

// As NVIDIA's recipes of DeepSeek-V3 and Kimi K2 have it, which start: a number of virtual stages
// beside a layout, prediction modules, shared experts without biases, more positions than the model
// was told, gathers beside computation alone. Megatron-LM's launch script would refuse four of
// them.
TEST_CASE("What only Megatron-LM's launch script refuses is none of a recipe's rules",
          "[formats][bridge]") {
  const std::string body = R"(
def recipe():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("deepseek-ai/DeepSeek-V3").to_megatron_provider()
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.virtual_pipeline_model_parallel_size = 2
    stages = [["embedding"] + ["decoder"] * 8] + [["decoder"] * 8] * 6 + [["decoder"] * 5 + ["mtp", "loss"]]
    cfg.model.pipeline_model_parallel_layout = stages
    cfg.model.mtp_num_layers = 1
    cfg.model.expert_model_parallel_size = 16
    cfg.model.max_position_embeddings = 2048
    cfg.model.seq_length = 4096
    cfg.ddp.overlap_grad_reduce = False
    cfg.ddp.overlap_param_gather = True
    cfg.train.micro_batch_size = 1
    cfg.train.global_batch_size = 256
    return cfg
)";
  const ImportedPlan imported = import_recipe(body);
  CHECK(imported.facts.at("launch_script") == 0);
  for (const Judgement& judgement :
       judge(rules_for("megatron-lm"), imported.plan, imported.facts)) {
    CAPTURE(judgement.id, judgement.message);
    CHECK_FALSE(judgement.refuses());
  }
}

// As recipes/kimi/h100/kimi_k2.py: owners of matrices, without the distributed optimizer's buffers.
TEST_CASE("A recipe's Muon is divided by matrices", "[formats][bridge][muon]") {
  const program::Plan plan = import_recipe(std::string(kBridgeLlama) +
                                           "    cfg.optimizer.optimizer = \"dist_muon\"\n"
                                           "    cfg.optimizer.muon_momentum = 0.95\n"
                                           "    cfg.optimizer.muon_num_ns_steps = 6\n"
                                           "    cfg.optimizer.muon_tp_mode = \"blockwise\"\n"
                                           "    cfg.optimizer.use_distributed_optimizer = False\n"
                                           "    return cfg\n")
                                 .plan;
  CHECK(plan.workload.optimizer.kind == program::OptimizerKind::Muon);
  CHECK(plan.workload.optimizer.momentum == 0.95);
  CHECK(plan.workload.optimizer.orthogonal_steps == 6);
  CHECK(plan.stack.settings.muon_tp == program::MuonTp::Blockwise);
  CHECK(plan.stack.settings.layer_wise_layout == false);
  CHECK(plan.zero_stage == 1);
}

TEST_CASE("Fields that are set after the model stand above it", "[formats][bridge]") {
  const ImportedPlan imported = import_recipe(std::string(kBridgeLlama) +
                                              "    cfg.model.num_layers = 40\n"
                                              "    return cfg\n");
  CHECK(imported.plan.model.num_layers == 40);
  CHECK(imported.plan.model.hidden_size == 8192);
  CHECK(imported.plan.model.name == "Meta-Llama-3-70B");
}

TEST_CASE("NullTokenizer has one token more, and gives it to the model that asks it",
          "[formats][bridge]") {
  const ImportedPlan imported =
      import_recipe(std::string(kBridgeLlama) +
                    "    cfg.tokenizer.use_tokenizer_vocab_size = True\n"
                    "    cfg.tokenizer.tokenizer_type = \"NullTokenizer\"\n"
                    "    cfg.tokenizer.vocab_size = 32000\n"
                    "    return cfg\n");
  CHECK(imported.plan.model.vocab_size == 32001);
}

TEST_CASE("Experts stay whole where they are divided over ranks", "[formats][bridge]") {
  const std::string body = R"(
def recipe():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-30B-A3B").to_megatron_provider()
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.sequence_parallel = True
    cfg.model.expert_model_parallel_size = 4
    cfg.model.seq_length = 4096
    if hasattr(cfg.model, "use_transformer_engine_op_fuser") and cfg.model.use_transformer_engine_op_fuser:
        cfg.model.use_transformer_engine_op_fuser = False
    return cfg
)";
  const ImportedPlan imported = import_recipe(body);
  CHECK(imported.plan.parallel.ep == 4);
  CHECK(imported.plan.parallel.etp == 1);  // Megatron-LM's would be tp
  CHECK(imported.plan.model.moe->num_experts == 128);
  CHECK(imported.plan.stack.settings.expert_dispatch == program::ExpertDispatch::AllToAll);
  CHECK(imported.plan.stack.settings.fused_experts == false);
}

TEST_CASE("Layouts of lists, and dictionaries of pairs, are followed", "[formats][bridge]") {
  const std::string body = R"(
def layout(pp, vp):
    known = {(1, 1): None, (2, 1): [["embedding"] + ["decoder"] * 14, ["decoder"] * 13 + ["loss"]]}
    vp = 1 if vp is None else vp
    if (pp, vp) not in known:
        raise ValueError(f"{pp}")
    return list([list(x) for x in known[(pp, vp)]])

def recipe():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("moonshotai/Moonlight-16B-A3B").to_megatron_provider()
    cfg.model.pipeline_model_parallel_size = 2
    cfg.model.seq_length = 4096
    try:
        cfg.model.pipeline_model_parallel_layout = layout(2, None)
        cfg.train.micro_batch_size = layout(3, None)
    except ValueError:
        cfg.train.micro_batch_size = 1
    return cfg
)";
  const ImportedPlan imported = import_recipe(body);
  CHECK(imported.plan.parallel.pp == 2);
  CHECK(imported.plan.layers_per_stage.empty());  // 14 and 13 is how 27 layers are divided anyhow
  CHECK(imported.plan.micro_batch_size == 1);
  CHECK(imported.plan.model.mla.has_value());
}

TEST_CASE("Precision is a name, a function or a MixedPrecisionConfig", "[formats][bridge]") {
  const ImportedPlan named = import_recipe(std::string(kBridgeLlama) +
                                           "    cfg.mixed_precision = \"bf16_with_mxfp8_mixed\"\n"
                                           "    return cfg\n");
  CHECK(named.plan.workload.fp8 == program::Float8Recipe::Hybrid);
  CHECK(named.plan.stack.settings.fp8_scaling == program::Fp8Scaling::MxFp8);
  const ImportedPlan called =
      import_recipe(std::string(kBridgeLlama) +
                    "    cfg.mixed_precision = bf16_with_fp8_current_scaling_mixed()\n"
                    "    if not isinstance(cfg.mixed_precision, str):\n"
                    "        cfg.mixed_precision.grad_reduce_in_fp32 = False\n"
                    "    return cfg\n");
  CHECK(called.plan.stack.settings.fp8_scaling == program::Fp8Scaling::Tensorwise);
  CHECK(called.plan.stack.settings.bf16_layers_at_start == 1);
  CHECK(called.plan.stack.settings.bf16_layers_at_end == 1);
  const ImportedPlan four = import_recipe(std::string(kBridgeLlama) +
                                          "    cfg.mixed_precision = \"bf16_with_nvfp4_mixed\"\n"
                                          "    return cfg\n");
  CHECK(four.plan.workload.fp8 == program::Float8Recipe::Hybrid);
  CHECK(four.plan.stack.settings.fp8_scaling == program::Fp8Scaling::NvFp4);
  CHECK_FALSE(four.plan.stack.settings.bf16_layers_at_end);
  const ImportedPlan all = import_recipe(  // as its performance recipes do
      std::string(kBridgeLlama) +
      "    cfg.mixed_precision = bf16_with_fp8_current_scaling_mixed()\n"
      "    cfg.mixed_precision.first_last_layers_bf16 = False\n"
      "    return cfg\n");
  CHECK_FALSE(all.plan.stack.settings.bf16_layers_at_start);
}

TEST_CASE("--args sets fields and parameters of a recipe", "[formats][bridge]") {
  const std::string body = std::string(kBridgeLlama)
                               .replace(5, 8, "recipe(batch=128)")
                               .append("    cfg.train.global_batch_size = batch\n    return cfg\n");
  CHECK(import_recipe(body).plan.workload.global_batch_size == 128);
  const ImportedPlan changed = import_recipe(body, 64, "batch=64 model.context_parallel_size=2");
  CHECK(changed.plan.workload.global_batch_size == 64);
  CHECK(changed.plan.parallel.cp == 2);
  CHECK_THROWS_WITH(import_recipe(body, 64, "bath=64"), Contains("batch"));
  CHECK_THROWS_WITH(import_recipe(body, 64, "model.$call=1"), Contains("is no name of a field"));
}

TEST_CASE("Names that are none of Python's are dropped", "[formats][bridge]") {
  const ImportedPlan imported =
      import_recipe(std::string(kBridgeLlama) +
                    "    setattr(cfg.model, \"$call\", 3)\n"
                    "    setattr(cfg.model, \"$source\", 3)\n"
                    "    cfg.mixed_precision = MixedPrecisionConfig(**{\"$source\": 3, \"bf16\": "
                    "True})\n"
                    "    return cfg\n");
  CHECK(imported.plan.parallel.tp == 4);
}

TEST_CASE("The number of GPUs stands in a recipe's name", "[formats][bridge]") {
  ImportRequest request{.main = "mine.py:big_128gpu_h100_config"};
  std::string text = kBridgeHeader + std::string(kBridgeLlama) + "    return cfg\n";
  text.replace(text.find("def recipe"), 10, "def big_128gpu_h100_config");
  request.files["mine.py"] = text;
  request.open = [](const std::string& path) -> std::optional<std::string> {
    if (path == "common.py") return kBridgeCommon;
    return std::nullopt;
  };
  CHECK(format_of("megatron-bridge").read(request).plan.parallel.world_size() == 128);
}

// Megatron-Bridge, peft/lora.py: rank 32, alpha 32, beside all four linears of a layer.
TEST_CASE("A recipe's LoRA becomes adapters over frozen weights", "[formats][bridge]") {
  const std::string start =
      "\ndef recipe():\n    cfg = _pretrain_common()\n"
      "    cfg.model = AutoBridge.from_hf_pretrained(\"Qwen/Qwen3-8B\").to_megatron_provider()\n";
  const program::Plan plan = import_recipe(start + "    cfg.peft = LoRA()\n    return cfg\n").plan;
  CHECK(plan.model.adapters ==
        models::AdapterSpec{.rank = 32,
                            .alpha = 32,
                            .modules = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}});
  CHECK(plan.frozen == models::all_but_adapters());
  const program::Plan narrow =
      import_recipe(start +
                    "    cfg.peft = LoRA(dim=8, alpha=16, target_modules=['linear_proj'])\n"
                    "    return cfg\n")
          .plan;
  CHECK(narrow.model.adapters ==
        models::AdapterSpec{.rank = 8, .alpha = 16, .modules = {"o_proj"}});
}

TEST_CASE("Adapters are exported as a recipe's LoRA, and nowhere else", "[formats][bridge]") {
  program::Plan plan = import_recipe(std::string(kBridgeLlama) + "    return cfg\n").plan;
  plan.stack = {};
  plan.model.adapters =
      models::AdapterSpec{.rank = 16, .alpha = 32, .modules = {"qkv_proj", "down_proj"}};
  plan.frozen = models::all_but_adapters();
  const auto files = format_of("megatron-bridge").write({.plan = plan});
  const std::string& recipe = files.front().text;
  CHECK_THAT(recipe, Contains("cfg.peft = LoRA(target_modules=[\"linear_qkv\", \"linear_fc2\"], "
                              "dim=16, alpha=32)"));
  CHECK_THAT(recipe, Contains("finetune(pretrain_config(), forward_step)"));
  ImportRequest back{.main = "recipe.py:pretrain_config", .ranks = plan.parallel.world_size()};
  back.files["recipe.py"] = recipe;
  const program::Plan read = format_of("megatron-bridge").read(back).plan;
  CHECK(read.model.adapters == plan.model.adapters);
  CHECK(read.frozen == plan.frozen);
  for (const char* target : {"megatron", "torchtitan", "deepspeed", "nanotron"}) {
    CAPTURE(target);
    program::Plan unfrozen = plan;
    unfrozen.frozen.clear();
    unfrozen.parallel = {.dp = 64};
    unfrozen.zero_stage = 0;
    CHECK_THROWS_WITH(format_of(target).write({.plan = unfrozen}), Contains("adapters"));
  }
}

TEST_CASE("What is no training of all weights of a decoder is refused by name",
          "[formats][bridge]") {
  const std::string start = "\ndef recipe():\n    cfg = _pretrain_common()\n";
  const auto of = [&](const std::string& lines) { return bridge_refusal(start + lines); };
  const std::string qwen =
      "    cfg.model = AutoBridge.from_hf_pretrained(\"Qwen/Qwen3-8B\").to_megatron_provider()\n";
  CHECK_THAT(of(qwen + "    cfg.peft = DoRA(dim=32)\n    return cfg\n"),
             Contains("peft = DoRA(dim=32): adapters of a plan are LoRA's"));
  CHECK_THAT(of(qwen + "    cfg.peft = LoRA(target_modules=[\"*.linear_qkv\"])\n    return cfg\n"),
             Contains("adapters on '*.linear_qkv'"));
  CHECK_THAT(of("    cfg.model = AutoBridge.from_hf_pretrained(\"Qwen/Qwen3-30B-A3B\")"
                ".to_megatron_provider()\n"
                "    cfg.peft = LoRA(dim=32)\n    return cfg\n"),
             Contains("the experts' linears"));
  CHECK_THAT(of("    cfg.model = AutoBridge.from_hf_pretrained(\"tiiuae/Falcon-H1-34B-Base\")"
                ".to_megatron_provider()\n    return cfg\n"),
             Contains("a hybrid with layers of Mamba"));
  CHECK_THAT(of("    cfg.model = AutoBridge.from_hf_pretrained(\"somebody/Model-9B\")"
                ".to_megatron_provider()\n    return cfg\n"),
             Contains("give its config.json with --model"));
  CHECK_THAT(of("    cfg.model = GPTModelProvider()\n    return cfg\n"),
             Contains("model.num_layers is not set"));
  CHECK_THAT(of("    cfg.model = AutoBridge.from_hf_pretrained(\"Qwen/Qwen3-8B\")"
                ".to_megatron_provider()\n"
                "    cfg.model.seq_length = 2048\n    return cfg\n"),
             Contains("dataset.seq_length = 4096"));
  CHECK_THAT(of("    cfg.model = AutoBridge.from_hf_pretrained(\"Qwen/Qwen3-8B\")"
                ".to_megatron_provider()\n"
                "    cfg.model.seq_length = 4096\n    tune(cfg.model)\n    return cfg\n"),
             Contains("'tune(cfg.model)' may change model"));
  CHECK_THAT(of("    cfg.model = AutoBridge.from_hf_pretrained(\"Qwen/Qwen3-8B\")"
                ".to_megatron_provider()\n"
                "    cfg.model.seq_length = 4096\n"
                "    cfg.model.tensor_model_parallel_size = devices()\n    return cfg\n"),
             Contains("model.tensor_model_parallel_size") && Contains("--args"));
}

TEST_CASE("A model that flags do not describe is taken whole", "[formats][bridge]") {
  const std::string body = R"(
def recipe():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("google/gemma-2-9b").to_megatron_provider()
    cfg.model.seq_length = 4096
    cfg.model.attention_backend = "flash"
)";
  const ImportedPlan imported = import_recipe(body + "    return cfg\n");
  CHECK(imported.plan.model.logit_softcap == 30.0);
  CHECK(imported.plan.stack.settings.attention == program::AttentionBackend::Flash);
  CHECK_THAT(bridge_refusal(body + "    cfg.model.num_layers = 4\n    return cfg\n"),
             Contains("model.num_layers = 4") && Contains("--model"));
}

TEST_CASE("A recipe that export writes is read back as its plan", "[formats][bridge]") {
  for (const char* preset : {"llama3-70b", "qwen3-30b-a3b", "deepseek-v3", "deepseek-v3.2",
                             "qwen3-next-80b-a3b", "gpt3-175b"}) {
    CAPTURE(preset);
    program::Plan plan = plan_of(preset, 16);
    plan.parallel.tp = 4;
    plan.parallel.sp = true;
    plan.parallel.dp = 4;
    plan.zero_stage = 1;
    plan.schedule = program::ScheduleKind::OneFOneB;
    if (plan.model.moe) plan.parallel.ep = 4;
    const Format& format = format_of("megatron-bridge");
    const std::vector<ExportedFile> files = format.write({.plan = plan});
    ImportRequest request = request_of("recipe.py", text_of(files, "recipe.py"), "", 16);
    request.main = "recipe.py:pretrain_config";
    const ImportedPlan imported = read_as("megatron-bridge", request);
    models::ModelSpec model = imported.plan.model;
    model.name = plan.model.name;
    model.max_positions = plan.model.max_positions;  // a recipe has no word for it
    CHECK(model == plan.model);
    CHECK(imported.plan.parallel == plan.parallel);
    CHECK(imported.plan.workload == plan.workload);
    CHECK(imported.plan.zero_stage == plan.zero_stage);
    CHECK(imported.plan.recompute == plan.recompute);
    CHECK(imported.plan.micro_batch_size == plan.micro_batch_size);
  }
}

}  // namespace meshplan::planner::format_tests
