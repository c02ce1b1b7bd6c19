// The scripts that are written for Megatron-LM. Golden files are read before they change: write
// them anew with MESHPLAN_WRITE_GOLDEN=1 test_planner "[golden]".
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "core/words.hpp"
#include "formats/megatron/known_flags.hpp"
#include "formats/megatron/layer_list.hpp"
#include "formats/megatron/layout.hpp"
#include "formats/megatron/megatron.hpp"
#include "formats/megatron_flags/flag.hpp"
#include "planner/formats/plans.hpp"
#include "program/checks/check.hpp"
#include "support/project_folder.hpp"

namespace meshplan::planner {
namespace {

using program::Plan;

const std::string kGolden = (test::project_folder() / "tests/planner/formats/golden/").string();

std::string file_of(const std::vector<ExportedFile>& files, std::string_view name) {
  for (const ExportedFile& file : files)
    if (file.name == name) return file.text;
  FAIL("no " << name);
  return "";
}

ExportRequest on_h100(Plan plan) {
  return {.plan = std::move(plan), .devices_per_node = 8, .device = "H100 SXM 80 GB"};
}

void check_golden(const std::string& name, const std::string& text) {
  if (std::getenv("MESHPLAN_WRITE_GOLDEN") != nullptr) std::ofstream(kGolden + name) << text;
  std::ifstream file(kGolden + name);
  std::ostringstream expected;
  expected << file.rdbuf();
  CHECK(text == expected.str());
}

std::string refusal_of(const Plan& plan) {
  try {
    write_megatron(on_h100(plan));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("golden scripts of Megatron-LM", "[planner][formats][golden]") {
  for (const auto& [name, plan] : {std::pair{"llama3-70b.sh", dense_70b()},
                                   {"deepseek-v3.sh", deepseek_v3()},
                                   {"uneven-gpt3.sh", uneven_gpt3()}}) {
    INFO(name);
    CHECK(check(plan).empty());
    check_golden(name, file_of(write_megatron(on_h100(plan)), "run.sh"));
  }
}

TEST_CASE("golden recipe of Megatron-Bridge", "[planner][formats][golden]") {
  check_golden("deepseek-v3-recipe.py",
               file_of(write_megatron_bridge(on_h100(deepseek_v3())), "recipe.py"));
}

TEST_CASE("every flag that can be written is one of Megatron-LM's", "[planner][formats]") {
  CHECK(megatron::known_flags().size() == 866);
  for (const megatron::Flag& flag : megatron::flags()) {
    INFO(flag.name);
    CHECK(megatron::is_known_flag(flag.name));
  }
  // The scripts hold some that no plan decides.
  for (const ExportedFile& file : write_megatron(on_h100(dense_70b()))) {
    const bool is_script = file.name.ends_with(".sh");
    bool in_arguments = false;  // behind the launcher's own
    std::istringstream lines(file.text);
    for (std::string line; is_script && std::getline(lines, line);) {
      in_arguments = in_arguments || line.starts_with("MODEL_ARGS");
      for (const std::string& word : words_of(line.substr(0, line.find('#')))) {
        if (!in_arguments || !word.starts_with("--")) continue;
        INFO(line);
        CHECK(megatron::is_known_flag(word));
      }
    }
  }
  CHECK_FALSE(megatron::is_known_flag("--tensor-parallel-size"));
}

TEST_CASE("one connection a device is set where Megatron-LM requires it", "[planner][formats]") {
  const auto sets = [](const ExportRequest& request) {
    return file_of(write_megatron(request), "run.sh").find("CUDA_DEVICE_MAX_CONNECTIONS=1") !=
           std::string::npos;
  };
  CHECK(sets(on_h100(dense_70b())));
  Plan without_tp = dense_70b();
  without_tp.parallel = {.pp = 4, .dp = 32};
  CHECK_FALSE(sets(on_h100(without_tp)));
  ExportRequest blackwell = on_h100(dense_70b());
  blackwell.device = "B200 180 GB";
  CHECK_FALSE(sets(blackwell));
}

TEST_CASE("tokens that travel once to a node ask for DeepEP", "[planner][formats]") {
  Plan by_node = deepseek_v3();
  by_node.expert_node_ranks = 8;
  const std::string script = file_of(write_megatron(on_h100(by_node)), "run.sh");
  const ImportedPlan back = read_megatron({.files = {{"run.sh", script}}, .main = "run.sh"});
  CHECK(back.plan.stack.settings.expert_dispatch == program::ExpertDispatch::DeepEp);
  CHECK(back.plan.expert_node_ranks == 0);  // of our own program

  by_node.expert_node_ranks = 0;
  const std::string flat = file_of(write_megatron(on_h100(by_node)), "run.sh");
  CHECK(flat.find("--moe-token-dispatcher-type alltoall") != std::string::npos);
}

TEST_CASE("what Megatron-LM has no words for is refused by field, value and nearest",
          "[planner][formats]") {
  const auto refused = [](auto change) {
    Plan plan = dense_70b();
    change(plan);
    return refusal_of(plan);
  };
  const std::string head = "Megatron-LM has no words for this plan:\n  ";
  CHECK(refused([](Plan& p) { p.schedule = program::ScheduleKind::ZbH1; }) ==
        head + "schedule 'zb-h1': megatron-core runs 1f1b or interleaved");
  CHECK(refused([](Plan& p) { p.zero_stage = 3; }) ==
        head + "zero stage 3: megatron-core has 0 or 1");
  CHECK(refused([](Plan& p) { p.rank_order = "tp-dp-cp-ep-pp"; }) ==
        head +
            "rank_order 'tp-dp-cp-ep-pp': Megatron-LM has tp-cp-ep-dp-pp and, with "
            "--use-tp-pp-dp-mapping, tp-cp-ep-pp-dp; nearest: tp-cp-ep-dp-pp");
  CHECK(refused([](Plan& p) { p.frozen = {"embedding"}; }) ==
        head +
            "frozen 'embedding': there are flags for all layers at once only "
            "(--freeze-all-layers); nearest: none");
  CHECK(refused([](Plan& p) { p.compression.kind = program::CompressionKind::Int8; }) ==
        head + "compression 'int8': gradients travel whole; nearest: none");
  CHECK(refused([](Plan& p) { p.workload.documents.packed = true; }) ==
        head + "workload.documents.packed: not written by this version; nearest: false");
  CHECK(refused([](Plan& p) { p.recompute.num_layers = 2; }) ==
        head +
            "recompute.num_layers 2 with kind 'selective': --recompute-num-layers is for 'full' "
            "only; nearest: null");
  CHECK(refused([](Plan& p) {
          p.recompute = {.kind = program::RecomputeKind::Selective,
                         .modules = {models::Module::Activations}};
        }) == head +
                  "recompute.modules 'activations': megatron-core recomputes norms, attention, "
                  "mla_up_proj, mlp, moe, moe_act or shared_experts");
  CHECK(refused([](Plan& p) { p.model.rope_base = 10000.5; }) ==
        head + "model.rope_base 10000.5: --rotary-base is a whole number; nearest: 10000");
  CHECK(refused([](Plan& p) { p.workload.optimizer.kind = program::OptimizerKind::Adam; }) ==
        head +
            "workload.optimizer.kind 'adam' with weight_decay 0.1: --optimizer adam decouples "
            "the decay; nearest: adamw");
  // Its rules speak of the rest.
  CHECK(refused([](Plan& p) {
          p.parallel.vpp = 2;
          p.schedule = program::ScheduleKind::Interleaved;
          p.workload.global_batch_size = 1016;  // 254 micro-batches
        })
            .starts_with("Megatron-LM refuses this plan (`meshplan check --for megatron-lm` says "
                         "more):\n  M14 ("));
  CHECK(refused([](Plan& p) {
          p.parallel.cp = 2;
          p.context_parallel = program::ContextMethod::AllGather;
        }) == head +
                  "context_parallel 'all_gather': megatron-core exchanges keys and values by "
                  "ring or ulysses");
  // All of them at once.
  CHECK(refused([](Plan& p) {
          p.zero_stage = 2;
          p.offload_optimizer = true;
        }).find("\n  offload_optimizer with zero stage 2") != std::string::npos);
  Plan gemma = dense_70b();
  gemma.model = models::load_preset("gemma2-2b");
  const std::string message = refusal_of(gemma);
  for (const char* field : {"norm_placement", "attention_softcap", "logit_softcap",
                            "embedding_scale", "activation 'gelu_tanh'"}) {
    INFO(message);
    CHECK(message.find(field) != std::string::npos);
  }
}

TEST_CASE("a division is said in the plainest of Megatron-LM's ways", "[planner][formats]") {
  const auto division = [](std::vector<int> layers, int pp, int vpp = 1) {
    Plan plan = dense_70b();
    plan.model.num_layers = 0;
    for (const int each : layers) plan.model.num_layers += each;
    plan.layers_per_stage = std::move(layers);
    plan.parallel.pp = pp;
    plan.parallel.vpp = vpp;
    return megatron::division_of(plan);
  };
  CHECK(division({4, 4, 4, 4}, 4) == megatron::Division::Even);
  CHECK(division({3, 4, 4, 3}, 4) == megatron::Division::Accounted);
  CHECK(division({1, 2, 2, 1}, 2, 2) == megatron::Division::Accounted);
  CHECK(division({2, 4, 4, 3}, 4) == megatron::Division::Ends);
  CHECK(division({5, 3}, 2) == megatron::Division::Ends);
  CHECK(division({0, 4, 4, 3}, 4) == megatron::Division::Layout);
  CHECK(division({3, 4, 5, 3}, 4) == megatron::Division::Layout);
  CHECK(division({2, 4, 4, 3}, 2, 2) == megatron::Division::Layout);
}

TEST_CASE("attention to chosen keys rotates without the fused kernel, as Megatron-LM asks",
          "[planner][formats]") {
  Plan plan = deepseek_v3();
  plan.recompute = {};
  const auto script = [&] { return file_of(write_megatron(on_h100(plan)), "run.sh"); };
  CHECK(script().find("--no-rope-fusion") == std::string::npos);
  plan.model = models::load_preset("deepseek-v3.2");
  CHECK(script().find("--no-rope-fusion") != std::string::npos);
  CHECK(script().find("--experimental-attention-variant dsa") != std::string::npos);
}

TEST_CASE("layouts are written as Megatron-LM's own examples read", "[planner][formats]") {
  using Layers = std::vector<int>;
  CHECK(megatron::layout_text({1, 2, 2, 2, 0}) == "Et|(tt|)*3L");
  CHECK(megatron::layout_text({5, 6, 1, 4}) == "Et*5|t*6|t|t*4L");
  CHECK(megatron::layout_text({5, 6, 1, 4}, 1) == "Et*5|t*6|t|t*4mL");
  // The docstring of parse_str_to_list: "Ettt|(tt|)*29,m|L".
  const megatron::ParsedLayout parsed = megatron::parse_layout("Ettt|(tt|)*29,m|L");
  Layers expected(32, 2);
  expected.front() = 3;
  expected[30] = 0;  // the prediction module's
  expected[31] = 0;
  CHECK(parsed.layers_per_stage == expected);
  CHECK(parsed.mtp_layers == 1);
  for (const Layers& layers : {Layers{3}, {1, 1}, {0, 5, 5, 5, 0}, {4, 4, 3, 3, 3, 5, 5}}) {
    INFO(megatron::layout_text(layers));
    CHECK(megatron::parse_layout(megatron::layout_text(layers)).layers_per_stage == layers);
  }
  for (const char* wrong : {"tt|tL", "Et|t", "Ex|L", "E(t|L", "Et|)L", "E(t|)L", "Et*|L"}) {
    INFO(wrong);
    CHECK_THROWS_AS(megatron::parse_layout(wrong), ConfigError);
  }
  CHECK_THROWS_WITH(megatron::parse_layout("Et*999999999|L"), Catch::Contains("at most 65536"));
}

TEST_CASE("lists over the layers are Python's", "[planner][formats]") {
  using List = std::vector<int>;
  CHECK(megatron::layer_list_text({0, 0, 0, 1, 1}) == "([0]*3+[1]*2)");
  CHECK(megatron::layer_list_text({1, 0, 1, 0, 1, 0}) == "([1,0]*3)");
  CHECK(megatron::layer_list_text({1, 0, 1, 0, 1}) == "([1]*1+[0]*1+[1]*1+[0]*1+[1]*1)");
  CHECK(megatron::layer_list_text({1, 1, 1, 1}) == "([1]*4)");
  CHECK(megatron::parse_layer_list("([1,0]*3)") == List{1, 0, 1, 0, 1, 0});
  CHECK(megatron::parse_layer_list("([0]*3+[1]*2)") == List{0, 0, 0, 1, 1});
  CHECK(megatron::parse_layer_list("[0]*1+[1]*2") == List{0, 1, 1});
  CHECK(megatron::parse_layer_list("([1]*2+[0]*1)*2") == List{1, 1, 0, 1, 1, 0});
  CHECK(megatron::parse_layer_list("2*[1, 0]") == List{1, 0, 1, 0});
  for (const char* wrong : {"", "[1", "[1]*", "([1]", "[1]+", "1", "[-1]", "[1]]"}) {
    INFO(wrong);
    CHECK_THROWS_AS(megatron::parse_layer_list(wrong), ConfigError);
  }
  CHECK_THROWS_WITH(megatron::parse_layer_list("[1]*9999*9999"), Catch::Contains("more than"));
  CHECK_THROWS_AS(megatron::parse_layer_list(std::string(100000, '(')), ConfigError);
}

}  // namespace meshplan::planner
