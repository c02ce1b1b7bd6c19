#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "core/error.hpp"
#include "planner/formats/formats_support.hpp"
#include "program/schedule/csv.hpp"

namespace meshplan::planner::format_tests {
namespace {

using program::CompiledPart;

using Catch::Matchers::Contains;
using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

// The shape of the project's own llama3_70b.toml.
constexpr const char* kLlama70b = R"(
[job]
description = "Llama 3 70B"

[model]
name = "llama3"
flavor = "70B"
converters = []

[optimizer]
name = "AdamW"
lr = 1.5e-4
eps = 1e-8

[lr_scheduler]
warmup_steps = 200

[training]
local_batch_size = 8
seq_len = 8192
max_norm = 1.0
steps = 1000
dataset = "c4"

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
pipeline_parallel_degree = 1
context_parallel_degree = 1

[activation_checkpoint]
mode = "full"

[compile]
enable = false
)";

ImportedPlan read_toml(const std::string& text, int ranks) {
  return read_as("torchtitan", request_of("train.toml", text, "", ranks));
}

std::string toml_error(const std::string& text, int ranks) {
  return read_error("torchtitan", request_of("train.toml", text, "", ranks));
}

}  // namespace

TEST_CASE("A TOML configuration becomes the plan that torchtitan would run",
          "[formats][torchtitan]") {
  const ImportedPlan read = read_toml(kLlama70b, 64);
  CHECK(read.plan.model == models::load_preset("llama3-70b"));
  CHECK(program::to_string(read.plan.parallel) == "tp8 sp dp8");
  CHECK(read.plan.zero_stage == 3);
  CHECK(read.plan.micro_batch_size == 8);
  CHECK(read.plan.workload.global_batch_size == 64);
  CHECK(read.plan.workload.seq_len == 8192);
  CHECK(read.plan.recompute.kind == RecomputeKind::Full);
  CHECK(read.plan.workload.precision == DType::BF16);
  CHECK(read.plan.workload.optimizer.learning_rate == 1.5e-4);
  CHECK(read.plan.stack.settings.compile == CompiledPart::None);
  CHECK(mentions(read.assumptions, "parallel.dp = 8"));
  CHECK(mentions(read.ignored, "training.dataset = \"c4\""));
  CHECK_FALSE(mentions(read.ignored, "tensor_parallel_degree"));
}

TEST_CASE("A TOML pipeline keeps its micro-batches, stages and schedule", "[formats][torchtitan]") {
  std::string text = replaced(kLlama70b, "pipeline_parallel_degree = 1",
                              "pipeline_parallel_degree = 2\n"
                              "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
                              "pipeline_parallel_layers_per_stage = 21\n"
                              "pipeline_parallel_microbatch_size = 2");
  const ImportedPlan read =
      read_toml(replaced(text, "mode = \"full\"", "mode = \"selective\""), 64);
  CHECK(program::to_string(read.plan.parallel) == "tp8 sp pp2 vpp2 dp4");
  CHECK(read.plan.schedule == ScheduleKind::Interleaved);
  CHECK(read.plan.micro_batch_size == 2);
  CHECK(read.plan.num_microbatches() == 4);
  // 82 effective layers over 4: torchtitan 20, 21, 20, 19; a plan [19, 21, 21, 19].
  CHECK(read.plan.count_ends_as_layers);
  CHECK(mentions(read.assumptions, "torchtitan's are [20, 21, 20, 19]"));
  // Every second layer is recomputed unless selective_ac_option says otherwise.
  CHECK(read.plan.recompute.kind == RecomputeKind::Full);
  CHECK(read.plan.recompute.num_layers == 11);
}

TEST_CASE("Split points and keys of 2024 are read", "[formats][torchtitan]") {
  const std::string old = R"(
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 8
seq_len = 8192
data_parallel_shard_degree = 2
tensor_parallel_degree = 2
[experimental]
context_parallel_degree = 1
pipeline_parallel_degree = 2
pipeline_parallel_split_points = ["layers.15"]
pipeline_parallel_schedule = "GPipe"
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
)";
  const ImportedPlan read = read_toml(old, 8);
  CHECK(program::to_string(read.plan.parallel) == "tp2 sp pp2 dp2");
  CHECK(read.plan.layers_per_stage == std::vector<int>{15, 17});
  CHECK(read.plan.schedule == ScheduleKind::GPipe);
  CHECK(read.plan.recompute.kind == RecomputeKind::Selective);
}

TEST_CASE("Keys of the first TOML files are read", "[formats][torchtitan]") {
  const std::string old = R"(
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 8
seq_len = 4096
warmup_steps = 20
data_parallel_degree = 2
tensor_parallel_degree = 2
compile = true
fp8_linear = ""
[experimental]
pipeline_parallel_degree = 2
[activation_checkpoint]
mode = "none"
)";
  const ImportedPlan read = read_toml(old, 8);
  CHECK(program::to_string(read.plan.parallel) == "tp2 sp pp2 dp2");
  CHECK(read.plan.zero_stage == 3);
  // As many micro-batches as stages, unless they are given.
  CHECK(read.plan.micro_batch_size == 4);
  CHECK(read.plan.num_microbatches() == 2);
  CHECK(read.plan.workload.optimizer.warmup_steps == 20);
  CHECK(read.plan.workload.precision == DType::BF16);
  CHECK(read.plan.stack.software == "torchtitan");
  const ImportedPlan more =
      read_toml(replaced(old, "pipeline_parallel_degree = 2",
                         "pipeline_parallel_degree = 2\npipeline_parallel_microbatches = 8"),
                8);
  CHECK(more.plan.num_microbatches() == 8);
  CHECK(read_toml(replaced(old, "fp8_linear = \"\"", "fp8_linear = \"dynamic\""), 8)
            .plan.workload.fp8 != program::Float8Recipe::None);
  CHECK_THAT(toml_error(replaced(old, "batch_size = 8", "batch_size = 7"), 8),
             Contains("training.batch_size: expected a multiple of 2 micro-batches"));
  CHECK_THAT(toml_error(replaced(old, "\"llama3\"", "\"flux\""), 8), Contains("flux makes images"));
}

TEST_CASE("The loss alone compiled is a model that runs as it is", "[formats][torchtitan]") {
  const std::string enabled = replaced(kLlama70b, "enable = false", "enable = true");
  CHECK(read_toml(enabled, 64).plan.stack.settings.compile == CompiledPart::All);
  CHECK(read_toml(enabled + "components = [\"loss\"]\n", 64).plan.stack.settings.compile ==
        CompiledPart::Loss);
  CHECK(
      read_toml(enabled + "components = [\"model\", \"loss\"]\n", 64).plan.stack.settings.compile ==
      CompiledPart::All);
}

TEST_CASE("Arguments of the command line change a configuration", "[formats][torchtitan]") {
  ImportRequest request = request_of("train.toml", kLlama70b, "", 64);
  request.arguments =
      "--training.local-batch-size 4 --parallelism.tensor_parallel_degree=4 --compile.enable "
      "--compile.components model,loss --model.flavor '8B'";
  const ImportedPlan read = read_as("torchtitan", request);
  CHECK(read.plan.model == models::load_preset("llama3-8b"));
  CHECK(read.plan.micro_batch_size == 4);
  CHECK(read.plan.parallel.tp == 4);
  CHECK(read.plan.stack.software == "torchtitan");
  const auto error = [&](const std::string& arguments) {
    request.arguments = arguments;
    return read_error("torchtitan", request);
  };
  CHECK_THAT(error("4"), Contains("--args: '4': expected --SECTION.KEY VALUE"));
  CHECK_THAT(error("--steps 4"), Contains("--args: --steps: expected --SECTION.KEY VALUE"));
  CHECK_THAT(error("--training.seq_len 4 5"), Contains("'5' is one value too many"));
  CHECK_THAT(error("--training.seq_len '4"), Contains("a quote never ends"));
  CHECK_THAT(error("--training.seq_len many"), Contains("training.seq_len: expected an integer"));
}

TEST_CASE("Flavors that no preset has are known by name", "[formats][torchtitan]") {
  const auto model = [](const std::string& family, const std::string& flavor) {
    return read_toml(replaced(replaced(kLlama70b, "\"llama3\"", "\"" + family + "\""),
                              "flavor = \"70B\"", "flavor = \"" + flavor + "\""),
                     64)
        .plan.model;
  };
  CHECK(model("qwen3", "32B").ffn_size == 25600);
  CHECK(model("qwen3", "0.6B").tied_embeddings);
  CHECK(model("llama3", "3B").head_size == 128);
  const models::ModelSpec lite = model("deepseek_v3", "16B");
  CHECK(lite.num_layers == 27);
  CHECK(lite.moe->shared_expert_ffn_size == 2816);
  CHECK_FALSE(lite.mla->q_lora_rank);
}

TEST_CASE("Wrong values of a TOML configuration are named with their place",
          "[formats][torchtitan]") {
  CHECK_THAT(
      toml_error(replaced(kLlama70b, "tensor_parallel_degree = 8", "tensor_parallel_degree = 0"),
                 64),
      Contains("train.toml: parallelism.tensor_parallel_degree: expected an integer of at "
               "least 1; nearest: 1, got 0"));
  CHECK_THAT(toml_error(replaced(kLlama70b, "mode = \"full\"", "mode = \"ful\""), 64),
             Contains("activation_checkpoint.mode: unknown value 'ful'; did you mean 'full'?"));
  CHECK_THAT(toml_error(kLlama70b, 60), Contains("does not divide the 60 GPUs"));
  CHECK_THAT(
      toml_error(replaced(kLlama70b, "pipeline_parallel_degree = 1",
                          "pipeline_parallel_degree = 2\npipeline_parallel_schedule = \"1F2B\""),
                 64),
      Contains("unknown schedule '1F2B'; did you mean '1F1B'"));
  CHECK_THAT(toml_error(replaced(kLlama70b, "flavor = \"70B\"", "flavor = \"71B\""), 64),
             Contains("flavor '71B'") && Contains("llama3 70B"));
  CHECK_THAT(read_error("torchtitan", request_of("train.toml", kLlama70b)),
             Contains("give it with --gpus"));
  CHECK_THAT(toml_error(replaced(kLlama70b, "tensor_parallel_degree = 8",
                                 "tensor_parallel_degree = 1048576"),
                        64),
             Contains("does not divide"));
  CHECK(mentions(
      read_toml(replaced(kLlama70b, "tensor_parallel_degree", "tensor_parallel_degre"), 64).ignored,
      "did you mean 'tensor_parallel_degree'"));
}

TEST_CASE("A Python configuration is read without running it", "[formats][torchtitan]") {
  const std::string text = R"(
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import SelectiveAC
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

CONTEXT = 8192


def llama3_70b_mine() -> Trainer.Config:
    model_spec = model_registry("70B")
    return Trainer.Config(
        model_spec=model_spec,
        optimizer=default_adamw(lr=1.5e-4),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=1 * CONTEXT,
            num_tokens_per_train_step=512 * CONTEXT,
            max_context_length=CONTEXT,
            disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=2,
            data_parallel_shard_degree=4,
            tensor_parallel_degree=8,
            pipeline_parallel_degree=4,
            pipeline_parallel_schedule="Interleaved1F1B",
            pipeline_parallel_layers_per_stage=11,
            num_pp_microbatches=64,
        ),
        activation_checkpoint=SelectiveAC.Config(),
        compile=CompileConfig(enable=True),
        seed=pick_seed(),
    )
)";
  const ImportedPlan read = read_as("torchtitan", request_of("plans.py", text));
  CHECK(read.plan.model == models::load_preset("llama3-70b"));
  CHECK(program::to_string(read.plan.parallel) == "tp8 sp pp4 vpp2 dp8");
  CHECK(read.plan.zero_shard_group == 4);
  CHECK(read.plan.num_microbatches() == 64);
  CHECK(read.plan.recompute.kind == RecomputeKind::Selective);
  CHECK(read.plan.stack.software == "torchtitan");
  CHECK(read.facts.at("cuda_graphs") == 0);
  CHECK(read.facts.at("flex_attention") == 1);
  CHECK(read.facts.at("layers_of_stage") == 11);
  CHECK(mentions(read.ignored, "seed"));
}

TEST_CASE("torchtitan's own configurations are what a file may start from",
          "[formats][torchtitan]") {
  const std::string text = R"(
from torchtitan.models.llama3.config_registry import llama3_70b

def mine():
    config = llama3_70b()
    config.parallelism.context_parallel_degree = 2
    config.training.num_tokens_per_microbatch_per_dp_rank = 2 * 8192
    return config
)";
  const ImportedPlan read = read_as("torchtitan", request_of("plans.py", text, "", 64));
  CHECK(program::to_string(read.plan.parallel) == "tp8 sp cp2 dp4");
  CHECK(read.plan.micro_batch_size == 2);
  CHECK(read.plan.workload.seq_len == 8192);
  CHECK(read.plan.recompute.kind == RecomputeKind::Full);
  CHECK(mentions(read.assumptions, "as in llama3_70b()"));
}

TEST_CASE("What is not understood is an error where it matters", "[formats][torchtitan]") {
  const std::string text =
      "def mine():\n    return Trainer.Config(model_spec=model_registry(\"8B\"),\n"
      "        parallelism=ParallelismConfig(tensor_parallel_degree=world() // 2))\n";
  CHECK_THAT(read_error("torchtitan", request_of("plans.py", text, "llama3-8b", 8)),
             Contains("plans.py: parallelism.tensor_parallel_degree: 'world() // 2' is not "
                      "understood"));
}

namespace {

constexpr const char* kRegistry = R"(
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.trainer import Trainer
from . import model_registry

def tiny(tp=1):
    return Trainer.Config(
        model_spec=model_registry("tiny"),
        optimizer=default_adamw(lr=1e-3),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=2 * 512, max_context_length=512),
        parallelism=ParallelismConfig(tensor_parallel_degree=tp),
        activation_checkpoint=FullAC.Config(),
    )

def tiny_tp() -> Trainer.Config:
    config = tiny(tp=2)
    config.compile = CompileConfig(enable=True, components=["loss"])
    return config

def tiny_fp8() -> Trainer.Config:
    config = tiny()
    config.model_spec = model_registry("tiny", converters=[Float8LinearConverter.Config()])
    return config

def tiny_fp4() -> Trainer.Config:
    config = tiny()
    config.model_spec = model_registry("tiny", converters=[NVFP4LinearConverter.Config()])
    return config

def tiny_muon() -> Trainer.Config:
    config = tiny()
    config.optimizer = muon(lr=1e-3)
    return config

def tiny_touched() -> Trainer.Config:
    config = tiny()
    adjust_everything(config)
    return config
)";

// The shape of torchtitan's own packages of models.
constexpr const char* kPackage = R"(
from torchtitan.models.common import Linear

def _layers(*, n_layers, dim, heads, kv_heads, ffn, dense):
    layers = []
    for layer_id in range(n_layers):
        moe = None
        feed_forward = None
        if layer_id < dense:
            feed_forward = FeedForward.Config(w1=Linear.Config(in_features=dim, out_features=ffn))
        else:
            moe = MoE.Config(
                num_experts=8,
                router=Router.Config(top_k=2, score_func="softmax", route_norm=True),
                routed_experts=RoutedExperts.Config(
                    inner_experts=GroupedExperts.Config(hidden_dim=ffn // 4)),
            )
        layers.append(Block.Config(
            attention=GQAttention.Config(n_heads=heads, n_kv_heads=kv_heads, head_dim=None, dim=dim),
            feed_forward=feed_forward, moe=moe))
    return layers

def _tiny():
    dim = 256
    return Model.Config(dim=dim, vocab_size=1024, enable_weight_tying=True,
        layers=_layers(n_layers=3, dim=dim, heads=8, kv_heads=2, ffn=4 * dim, dense=1))

configs = {"tiny": _tiny}

def model_registry(flavor, converters=None):
    config = configs[flavor]()
    if converters is not None:
        for c in converters:
            config = c.build().convert(config)
    return ModelSpec(name="tiny_moe", flavor=flavor, model=config)
)";

ImportRequest registry_request(const std::string& function, int ranks = 8) {
  const std::string file = "models/tiny/config_registry.py";
  ImportRequest request{.files = {{file, kRegistry}}, .main = file, .ranks = ranks};
  if (!function.empty()) request.main += ":" + function;
  request.open = [](const std::string& path) -> std::optional<std::string> {
    if (path != "models/tiny/__init__.py") return std::nullopt;
    return kPackage;
  };
  return request;
}

}  // namespace

TEST_CASE("A registry's function is read with the model that the package beside it builds",
          "[formats][torchtitan]") {
  const ImportedPlan read = read_as("torchtitan", registry_request("tiny_tp"));
  const models::ModelSpec& model = read.plan.model;
  CHECK(model.num_layers == 3);
  CHECK(model.hidden_size == 256);
  CHECK(model.num_heads == 8);
  CHECK(model.num_kv_heads == 2);
  CHECK(model.head_size == 32);
  CHECK(model.ffn_size == 1024);
  CHECK(model.vocab_size == 1024);
  CHECK(model.tied_embeddings);
  REQUIRE(model.moe);
  CHECK(model.moe->num_experts == 8);
  CHECK(model.moe->top_k == 2);
  CHECK(model.moe->expert_ffn_size == 256);
  CHECK(model.moe->dense_layers == std::vector<int>{0});
  CHECK(program::to_string(read.plan.parallel) == "tp2 sp dp4 etp2");
  CHECK(read.plan.micro_batch_size == 2);
  CHECK(read.plan.recompute.kind == RecomputeKind::Full);
  CHECK(read.plan.stack.settings.compile == CompiledPart::Loss);  // the loss alone is compiled
  CHECK(read.plan.workload.precision == DType::BF16);
  const ImportedPlan fp8 = read_as("torchtitan", registry_request("tiny_fp8"));
  CHECK(fp8.plan.workload.fp8 != program::Float8Recipe::None);
  ImportRequest changed = registry_request("tiny_tp");
  changed.arguments = "--parallelism.tensor_parallel_degree 1";
  CHECK(program::to_string(read_as("torchtitan", changed).plan.parallel) == "dp8");
}

TEST_CASE("What a registry's function does beyond a plan's words is refused",
          "[formats][torchtitan]") {
  const auto error = [](const std::string& function) {
    return read_error("torchtitan", registry_request(function));
  };
  CHECK_THAT(error(""), Contains("6 functions return configurations: tiny") &&
                            Contains("meshplan import models/tiny/config_registry.py:tiny"));
  CHECK_THAT(error("tiny_fp4"), Contains("NVFP4LinearConverter.Config"));
  CHECK_THAT(error("tiny_muon"), Contains("optimizer: muon is not predicted"));
  CHECK_THAT(error("tiny_touched"),
             Contains("config_registry.py:40: 'adjust_everything(config)' may change the "
                      "configuration"));
  CHECK_THAT(error("tinny"), Contains("did you mean 'tiny'"));
  ImportRequest alone = registry_request("tiny");
  alone.open = nullptr;
  CHECK_THAT(read_error("torchtitan", alone), Contains("flavor 'tiny' of model 'tiny'"));
}

TEST_CASE("A schedule without a name of torchtitan's travels as its tasks",
          "[formats][torchtitan]") {
  Plan plan = plan_of("llama3-8b", 2);
  plan.parallel.pp = 4;
  plan.schedule = ScheduleKind::ZbH1;
  plan.zero_stage = 3;
  plan.workload.global_batch_size = 16;
  const std::vector<ExportedFile> files = format_of("torchtitan").write({.plan = plan});
  CHECK(text_of(files, "schedule.csv") == program::to_csv(program::schedule_of(plan)));
  CHECK_THAT(text_of(files, "torchtitan_plan.py"),
             Contains("pipeline_parallel_schedule=\"PipelineScheduleSingle\""));
  // PyTorch's groups of micro-batches differ from ours where pp does not divide their number.
  plan.schedule = ScheduleKind::Interleaved;
  plan.parallel.vpp = 2;
  CHECK(text_of(format_of("torchtitan").write({.plan = plan}), "schedule.csv").empty());
  plan.workload.global_batch_size = 14;
  CHECK_FALSE(text_of(format_of("torchtitan").write({.plan = plan}), "schedule.csv").empty());
}

TEST_CASE("What torchtitan has no words for is refused by field, value and what it has",
          "[formats][torchtitan]") {
  const auto error = [](auto change, const std::string& preset = "llama3-8b") {
    Plan plan = plan_of(preset);
    plan.zero_stage = 3;
    change(plan);
    return write_error("torchtitan", plan);
  };
  CHECK(error([](Plan&) {}).empty());
  CHECK_THAT(error([](Plan& p) { p.parallel.tp = 16; }),
             Contains("parallel.tp = 16: must divide n_kv_heads (8)") && Contains("nearest: 8"));
  CHECK_THAT(error([](Plan& p) { p.parallel.pp = 2; }, "llama3.2-1b"),
             Contains("parallel.pp = 2: tied weights"));
  CHECK_THAT(error([](Plan& p) { p.parallel.ep = p.parallel.etp = 2; }, "qwen3-30b-a3b"),
             Contains("parallel.etp = 2") && Contains("nearest: 1"));
  CHECK_THAT(error([](Plan& p) { p.parallel.tp = 2; }, "qwen3-30b-a3b"),
             Contains("parallel.etp = 1") && Contains("nearest: 2"));
  CHECK_THAT(error([](Plan& p) { p.parallel.ep = 3; }, "qwen3-30b-a3b"),
             Contains("parallel.ep = 3: must divide dp_shard * cp * tp = 8"));
  CHECK_THAT(error([](Plan& p) { p.zero_stage = 1; }), Contains("zero_stage = 1"));
  CHECK_THAT(
      error([](Plan& p) { p.recompute.num_layers = 2, p.recompute.kind = RecomputeKind::Full; }),
      Contains("recompute.num_layers = 2"));
  CHECK_THAT(error([](Plan& p) { p.workload.precision = DType::F16; }),
             Contains("workload.precision = fp16"));
  CHECK_THAT(error([](Plan& p) { p.frozen = {"embedding"}; }), Contains("frozen = [embedding]"));
  CHECK_THAT(
      error([](Plan& p) { p.rank_order = "cp-tp-ep-dp-pp", p.parallel.tp = p.parallel.cp = 2; }),
      Contains("rank_order = cp-tp-ep-dp-pp"));
  CHECK_THAT(error([](Plan&) {}, "llama2-7b"), Contains("model = llama2-7b") &&
                                                   Contains("nearest: llama3 8B") &&
                                                   Contains("vocab_size"));
  // All of them at once.
  const std::string both = error([](Plan& p) { p.parallel.tp = 16, p.zero_stage = 1; });
  CHECK_THAT(both, Contains("parallel.tp") && Contains("zero_stage"));
}

}  // namespace meshplan::planner::format_tests
