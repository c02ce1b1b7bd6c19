// What is written for Megatron-LM is read back as the same plan.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "core/error.hpp"
#include "formats/megatron/inexpressible.hpp"
#include "formats/megatron/megatron.hpp"
#include "formats/megatron/rule_facts.hpp"
#include "planner/formats/plans.hpp"
#include "program/checks/check.hpp"
#include "program/plan_file/plan_file.hpp"
#include "sim/random_plans.hpp"

namespace meshplan::planner {
namespace {

using program::Plan;

bool is_written(const Plan& plan) {
  return check(plan).empty() && megatron::inexpressible(plan).empty() &&
         megatron::refusals(plan).empty();
}

std::string run_script(const Plan& plan) {
  for (const ExportedFile& file : write_megatron({.plan = plan}))
    if (file.name == "run.sh") return file.text;
  FAIL("there is a run.sh");
  return "";
}

ImportedPlan read_back(const Plan& plan) {
  return read_megatron({.files = {{"run.sh", run_script(plan)}}, .main = "run.sh"});
}

/// Without what is not of the stack: settings of our own runtime, and what the plan does not use.
Plan comparable(Plan plan) {
  const Plan plain;
  models::ModelSpec& model = plan.model;
  model.name.clear();
  if (model.positions == models::Positions::Rope)
    model.max_positions =
        static_cast<int>(std::max<std::int64_t>(model.max_positions, plan.workload.seq_len));
  if (model.moe && model.moe->dense_layers.empty()) model.ffn_size = 0;
  std::vector<models::Mixer> pattern;
  for (int layer = 0; layer < model.num_layers; ++layer)
    pattern.push_back(mixer_of_layer(model, layer));
  model.layer_pattern = pattern;
  plan.model_hash = plan.cluster_name = plan.cluster_hash = plan.cluster_json = "";
  plan.prediction.reset();
  plan.stack = plain.stack;
  plan.bucket_bytes = plain.bucket_bytes;
  plan.expert_imbalance = plain.expert_imbalance;
  plan.expert_node_ranks = plain.expert_node_ranks;
  plan.expert_dispatch_fp8 = plain.expert_dispatch_fp8;
  plan.expected_expert_imbalance = plain.expected_expert_imbalance;
  if (plan.parallel.cp == 1) plan.context_parallel = plain.context_parallel;
  plan.layers_per_stage = resolved_layers_per_stage(plan);
  plan.count_ends_as_layers = false;
  if (plan.zero_shard_group == plan.parallel.dp * plan.parallel.cp) plan.zero_shard_group = 0;
  program::OptimizerConfig& optimizer = plan.workload.optimizer;
  const program::OptimizerConfig defaults;
  const bool sgd = optimizer.kind == program::OptimizerKind::Sgd;
  if (sgd) {
    optimizer.beta1 = defaults.beta1;
    optimizer.beta2 = defaults.beta2;
    optimizer.epsilon = defaults.epsilon;
  } else {
    optimizer.momentum = defaults.momentum;
    optimizer.kind = program::OptimizerKind::AdamW;  // plain Adam is written without decay only
  }
  if (optimizer.schedule == program::LearningRateSchedule::Constant)
    optimizer.minimum_ratio = defaults.minimum_ratio;
  return plan;
}

/// A random plan with random settings of training, too.
Plan any_plan(testing::Random& random, std::vector<std::string>& techniques) {
  sim::RandomPlan made = sim::random_plan(random);
  Plan& plan = made.plan;
  techniques = made.techniques;
  program::OptimizerConfig& optimizer = plan.workload.optimizer;
  const auto part = [&] { return static_cast<double>(random.below(1000)) / 1000; };
  optimizer.learning_rate = part() / 100 + 1e-6;
  optimizer.minimum_ratio = part();
  optimizer.weight_decay = random.one_in(4) ? 0 : part();
  optimizer.clip_norm = part();
  optimizer.beta2 = part();
  optimizer.warmup_steps = static_cast<int>(random.below(2000));
  if (random.one_in(2)) optimizer.decay_steps = 2000 + static_cast<int>(random.below(100000));
  if (random.one_in(4)) optimizer.schedule = program::LearningRateSchedule::Constant;
  if (random.one_in(5)) plan.workload.precision = random.one_in(2) ? DType::F32 : DType::F16;
  if (random.one_in(5) && plan.workload.precision == DType::BF16)
    program::set_precision(plan.workload, program::Precision::Fp8);
  if (random.one_in(6)) plan.rank_order = "tp-cp-ep-pp-dp";
  if (random.one_in(6)) plan.model.tied_embeddings = !plan.model.tied_embeddings;
  if (random.one_in(2)) plan.frozen.clear();  // seldom written otherwise
  if (random.one_in(2)) plan.workload.documents = {};
  return plan;
}

}  // namespace

TEST_CASE("300 random plans are written for Megatron-LM and read back", "[planner][formats]") {
  testing::Random random(20261125);
  std::map<std::string, int> seen;
  int written = 0;
  for (int tries = 0; written < 300; ++tries) {
    REQUIRE(tries < 60000);
    std::vector<std::string> techniques;
    const Plan plan = any_plan(random, techniques);
    if (!is_written(plan)) continue;
    ++written;
    for (const std::string& technique : techniques) ++seen[technique];
    const ImportedPlan back = read_back(plan);
    const std::string script = run_script(plan);
    INFO(script);
    REQUIRE(program::to_json(comparable(back.plan)) == program::to_json(comparable(plan)));
    CHECK(back.plan.stack.software == "megatron-core");
    CHECK(check(back.plan).empty());
    // Nothing that the plan decides is left open.
    for (const std::string& assumption : back.assumptions) {
      INFO(assumption);
      CHECK((assumption.find("MOCK_DATA") != std::string::npos ||
             assumption.find("FAKE_RANK") != std::string::npos));
    }
  }
  // The sample is no corner of what can be written.
  for (const char* technique :
       {"interleaved", "1f1b", "no pipeline", "tp", "tp with sp", "cp ring", "cp ulysses", "ep",
        "etp", "dp", "zero 1", "zero in groups", "uneven", "recompute selective", "recompute full",
        "recompute of some layers", "offload"}) {
    INFO(technique);
    CHECK(seen[technique] > 0);
  }
}

TEST_CASE("modules that are recomputed are written for Megatron-LM and read back",
          "[planner][formats][recompute]") {
  using models::Module;
  Plan experts = deepseek_v3();
  experts.model.mtp_layers = 0;
  program::set_precision(experts.workload, program::Precision::BF16);
  const auto check_all = [](Plan plan, const std::vector<Module>& modules) {
    for (std::uint32_t bits = 0; bits < 1U << modules.size(); ++bits) {
      plan.recompute = {.kind = program::RecomputeKind::Selective};
      for (std::size_t i = 0; i < modules.size(); ++i)
        if ((bits >> i & 1U) != 0) plan.recompute.modules.add(modules[i]);
      INFO(program::recompute_name(plan.recompute));
      REQUIRE(is_written(plan));
      CHECK(read_back(plan).plan.recompute == plan.recompute);
    }
  };
  check_all(dense_70b(), {Module::Norms, Module::Attention, Module::Mlp});
  check_all(experts, {Module::Norms, Module::Attention, Module::MlaUpProj, Module::Mlp, Module::Moe,
                      Module::MoeAct, Module::SharedExperts});
  // Megatron-LM's own default is left to it.
  CHECK(run_script(dense_70b()).find("--recompute-modules") == std::string::npos);
  Plan named = dense_70b();
  named.recompute.modules = {Module::Mlp, Module::Norms};
  CHECK(run_script(named).find("--recompute-modules layernorm mlp\n") != std::string::npos);
}

// By hand: MESHPLAN_SCRIPTS=FOLDER test_planner "[.scripts]", for scripts/megatron_accepts.py.
TEST_CASE("300 random plans as scripts", "[.scripts]") {
  const char* folder = std::getenv("MESHPLAN_SCRIPTS");
  REQUIRE(folder != nullptr);
  testing::Random random(20261126);
  for (int written = 0; written < 300;) {
    std::vector<std::string> techniques;
    const Plan plan = any_plan(random, techniques);
    if (!is_written(plan)) continue;
    std::ofstream(std::string(folder) + "/" + std::to_string(++written) + ".sh")
        << run_script(plan);
  }
}

TEST_CASE("presets that Megatron-LM can express are recognized by their numbers",
          "[planner][formats]") {
  std::set<std::string> recognized;
  for (const std::string& name : models::preset_names()) {
    Plan plan;
    plan.model = models::load_preset(name);
    plan.model.dropout = 0;
    plan.workload = {.seq_len = 512, .global_batch_size = 8, .precision = DType::BF16};
    if (!is_written(plan)) continue;
    const ImportedPlan back = read_back(plan);
    INFO(name);
    CHECK(back.plan.model.name == name);
    CHECK(back.plan.model.mtp_layers == plan.model.mtp_layers);
    recognized.insert(name);
  }
  // Gemma's norms and scales, BERT and hybrids with Mamba are what is missing.
  CHECK(recognized == std::set<std::string>{"codellama-34b",
                                            "deepseek-v2-lite",
                                            "deepseek-v3",
                                            "deepseek-v3.2",
                                            "glm4.5",
                                            "glm4.5-air",
                                            "gpt-oss-120b",
                                            "gpt-oss-20b",
                                            "gpt2-124m",
                                            "gpt2-large",
                                            "gpt2-medium",
                                            "gpt2-xl",
                                            "gpt3-175b",
                                            "llama2-13b",
                                            "llama2-70b",
                                            "llama2-7b",
                                            "llama3-70b",
                                            "llama3-8b",
                                            "llama3.1-405b",
                                            "llama3.1-70b",
                                            "llama3.1-8b",
                                            "llama3.2-1b",
                                            "llama3.2-3b",
                                            "mimo-7b",
                                            "mistral-7b",
                                            "mistral-7b-v0.3",
                                            "mixtral-8x22b",
                                            "mixtral-8x7b",
                                            "phi-4",
                                            "qwen2.5-0.5b",
                                            "qwen2.5-1.5b",
                                            "qwen2.5-14b",
                                            "qwen2.5-32b",
                                            "qwen2.5-3b",
                                            "qwen2.5-72b",
                                            "qwen2.5-7b",
                                            "qwen3-0.6b",
                                            "qwen3-1.7b",
                                            "qwen3-14b",
                                            "qwen3-235b-a22b",
                                            "qwen3-30b-a3b",
                                            "qwen3-32b",
                                            "qwen3-4b",
                                            "qwen3-8b",
                                            "qwen3-coder-480b-a35b",
                                            "qwen3-next-80b-a3b",
                                            "small-llama",
                                            "smollm2-135m",
                                            "tiny-gpt2",
                                            "tiny-llama",
                                            "tiny-moe",
                                            "tinyllama-1.1b"});
}

}  // namespace meshplan::planner
