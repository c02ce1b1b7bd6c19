// Lowering of a mixture of experts: sizes, groups, rules. That it computes the right thing is shown
// by runtime/parity_experts_mpi_test.
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "checks/program_errors.hpp"
#include "program/checks/check.hpp"
#include "program/cost/cost.hpp"
#include "program/inspect.hpp"
#include "program/plans.hpp"
#include "program/shard_layout.hpp"

namespace meshplan::program::test {
namespace {

using Catch::Matchers::Contains;

/// 2 of 8 experts of width 32 for each of 16 tokens.
models::ModelSpec mixtral_style() {
  models::ModelSpec model = llama_style();
  model.name = "mixtral-style";
  model.ffn_size = 0;
  model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 32};
  return model;
}

std::string broken_rule(const Plan& plan) {
  std::string all;
  for (const Violation& violation : check(plan)) all += violation.message + "\n";
  return all;
}

}  // namespace

TEST_CASE("buffers hold the rows of the planned imbalance, or all that could come",
          "[program][experts]") {
  Plan plan = make_plan(mixtral_style());
  CHECK(routed_rows_bound(plan) == 16 * 2);
  plan.parallel = {.dp = 4, .ep = 4};  // two experts here: a token sends both of its rows at most
  plan.expert_imbalance = 1.5;
  CHECK(routed_rows_bound(plan) == 48);
  CHECK(most_routed_rows(plan) == 4 * 16 * 2);
  plan.expert_imbalance = 100;
  CHECK(routed_rows_bound(plan) == 4 * 16 * 2);
  CHECK(most_routed_rows(make_plan(llama_style())) == 0);
  plan.parallel = {.dp = 8, .ep = 8};  // one expert: one row of each token
  CHECK(routed_rows_bound(plan) == 8 * 16);
  plan.parallel = {.tp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true};
  plan.expert_imbalance = 1;  // 8 tokens here, 16 with the other etp rank's
  CHECK(routed_rows_bound(plan) == 16 * 2);
  CHECK(routed_rows_bound(make_plan(llama_style())) == 0);
}

TEST_CASE("biases of experts are cut like their rows, or whole where rows are summed",
          "[program][experts]") {
  models::ModelSpec model = mixtral_style();
  model.moe->expert_bias = true;
  const Plan plan = make_plan(model, {.dp = 4, .ep = 2, .etp = 2});
  const Program program = lower(plan, 0);
  using Shape = std::vector<std::int64_t>;
  const std::string experts = "layers.0.mlp.experts.";
  CHECK(parameter_named(program, experts + "gate_up_proj.bias").local_shape == Shape{4, 32});
  CHECK(parameter_named(program, experts + "down_proj.bias").local_shape == Shape{4, 64});
  // The norm counts the biases that both etp ranks hold once: here, of 2 ranks each.
  std::map<std::string, std::int64_t> counted;
  for (const std::size_t i : instances_named(program, "squared_norm")) {
    const auto& work = std::get<StepOp>(operation_of(program, program.instances[i]).work);
    if (!work.expert) continue;
    for (const Parameter& parameter : program.parameters) {
      const std::int64_t begin = std::max(parameter.offset, work.range.begin);
      const std::int64_t end = std::min(parameter.offset + parameter.elements(), work.range.end);
      if (begin < end) counted[parameter.name] += (end - begin) * 2 / work.tp_copies;
    }
  }
  CHECK(counted.at(experts + "down_proj.bias") == 4 * 64);
  CHECK(counted.at(experts + "gate_up_proj.bias") == 2 * 4 * 32);
  CHECK(counted.at(experts + "down_proj.weight") == 2 * 4 * 64 * 16);
}

TEST_CASE("work on routed rows is counted for the busiest ep rank", "[program][experts]") {
  Plan plan = make_plan(mixtral_style());
  plan.parallel = {.dp = 4, .ep = 4};
  plan.workload.global_batch_size = 4;
  const auto costs = [](const Plan& of) {
    std::map<std::string, std::pair<double, std::int64_t>> by_name;
    const Program program = lower(of, 0);
    for (const OperationInstance& instance : program.instances) {
      if (!instance.layer || !layer_of(program, instance).layer) continue;
      const OperationCost cost = operation_cost(program, instance);
      by_name[operation_of(program, instance).name] = {cost.flops, cost.bytes};
    }
    return by_name;
  };
  const auto balanced = costs(plan);
  // 16 tokens, 2 experts each: 32 rows of 64 columns travel each way.
  CHECK(balanced.at("dispatch.all_to_all").second == 32 * 64 * 4);
  plan.expected_expert_imbalance = 1.5;
  const auto busiest = costs(plan);
  for (const char* name : {"dispatch.all_to_all", "combine.all_to_all",
                           "dispatch.all_to_all.input_grad", "combine.all_to_all.input_grad"})
    CHECK(busiest.at(name).second == 48 * 64 * 4);
  for (const char* name :
       {"expert_gate_up", "expert_down", "expert_down.input_grad", "expert_gate_up.weight_grad"})
    CHECK(busiest.at(name).first == 1.5 * balanced.at(name).first);
  CHECK(busiest.at("expert_activation").second > balanced.at("expert_activation").second);
  CHECK(busiest.at("qkv") == balanced.at("qkv"));
  CHECK(busiest.at("combine") == balanced.at("combine"));  // of the tokens here
  plan.parallel = {.dp = 4};                               // no exchange: every rank has its own
  plan.expected_expert_imbalance = 1;
  const auto alone = costs(plan);
  plan.expected_expert_imbalance = 1.5;
  CHECK(costs(plan) == alone);
  plan.expected_expert_imbalance = 2.5;
  CHECK_THAT(broken_rule(plan), Contains("expected_expert_imbalance (2.5)") && Contains("(2)"));
}

TEST_CASE("a capacity bounds the rows of a rank", "[program][experts]") {
  Plan plan = make_plan(mixtral_style());  // 16 tokens, 2 of 8 experts: a share is 4
  CHECK(expert_capacity(plan) == 0);
  plan.model.moe->capacity_factor = 1.25;
  CHECK(expert_capacity(plan) == 5);
  CHECK(routed_rows_bound(plan) == 16 * 2);
  plan.model.moe->capacity_factor = 0.5;
  CHECK(expert_capacity(plan) == 2);
  CHECK(routed_rows_bound(plan) == 8 * 2);
  plan.parallel = {.dp = 4, .ep = 4};  // two experts, which take 2 tokens of each of 4 sequences
  plan.expert_imbalance = 100;
  CHECK(routed_rows_bound(plan) == 2 * 2 * 4);
  plan.model.moe->capacity_factor = 100;
  CHECK(expert_capacity(plan) == 16);
}

TEST_CASE("correction biases lie behind all parameters that gradients move", "[program][experts]") {
  Plan plan = make_plan(mixtral_style(), {.dp = 2, .ep = 2}, 2);
  plan.model.moe->router.correction_bias = true;
  const Program program = lower(plan, 0);
  std::int64_t first = program.parameter_elements;
  int biases = 0;
  for (const Parameter& parameter : program.parameters)
    if (!parameter.trained) {
      first = std::min(first, parameter.offset);
      ++biases;
    }
  CHECK(biases == plan.model.num_layers);
  int moved = 0;
  for (const Operation& operation : program.step_operations) {
    const auto* step = std::get_if<StepOp>(&operation.work);
    if (step != nullptr && step->work == StepWork::BalanceExperts) {
      CHECK(step->range.begin >= first);
      CHECK(step->load_row == moved++);
    } else if (step != nullptr) {
      CHECK(step->range.end <= first);
    }
  }
  CHECK(moved == biases);
}

TEST_CASE("experts are cut over ep and their width over etp", "[program][experts]") {
  const Program program =
      lower(make_plan(mixtral_style(), {.tp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true}, 1), 0);
  const Parameter& up =
      parameter_named(program, "layers.0.mlp.experts.gate_up_proj.weight");  // (8, 64, 64)
  CHECK(up.local_shape == std::vector<std::int64_t>{4, 32, 64});
  const Parameter& down =
      parameter_named(program, "layers.0.mlp.experts.down_proj.weight");  // (8, 64, 32)
  CHECK(down.local_shape == std::vector<std::int64_t>{4, 64, 16});
  // ep rank 1, etp rank 1: of its second expert, number 5, the second halves of gate and up
  const std::vector<MatrixPiece> pieces = matrix_pieces(up, {.etp = 1, .ep = 1});
  REQUIRE(pieces.size() == 8);
  CHECK(pieces[2] == MatrixPiece{.local_offset = 32 * 64,
                                 .local_stride = 64,
                                 .global_row = 5 * 64 + 16,
                                 .rows = 16,
                                 .columns = 64});
  CHECK(pieces[3].global_row == 5 * 64 + 32 + 16);
  const std::vector<MatrixPiece> columns = matrix_pieces(down, {.etp = 1, .ep = 0});
  REQUIRE(columns.size() == 4);
  CHECK(columns[3] == MatrixPiece{.local_offset = 3 * 64 * 16 + 0,
                                  .local_stride = 16,
                                  .global_row = 3 * 64,
                                  .global_column = 16,
                                  .rows = 64,
                                  .columns = 16});
}

TEST_CASE("expert gradients are reduced over the expert-data group, all others over dp",
          "[program][experts]") {
  const Program program = lower(make_plan(mixtral_style(), {.dp = 4, .ep = 2}, 2), 0);
  std::vector<int> reduced(static_cast<std::size_t>(program.parameter_elements), 0);
  for (const OperationInstance& instance : program.instances) {
    const auto* flat = std::get_if<FlatCollectiveOp>(&operation_of(program, instance).work);
    if (flat == nullptr || flat->region != Region::Gradients) continue;
    const int group = flat->collective.group == Group::ExpertDp ? 1 : 2;
    for (std::int64_t i = flat->range.begin; i < flat->range.end; ++i)
      reduced[static_cast<std::size_t>(i)] += group;
  }
  for (const Parameter& parameter : program.parameters) {
    INFO(parameter.name);
    const bool expert = parameter.name.find("mlp.experts.") != std::string::npos;
    CHECK(parameter.expert == expert);
    for (std::int64_t i = 0; i < parameter.elements(); ++i)
      if (reduced[static_cast<std::size_t>(parameter.offset + i)] != (expert ? 1 : 2))
        FAIL("element " << i << " is reduced otherwise");
  }
}

TEST_CASE("programs with experts are consistent under every schedule", "[program][experts]") {
  for (const ParallelConfig& parallel :
       {ParallelConfig{.pp = 2, .dp = 2, .ep = 2},
        ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .ep = 4, .sp = true},
        ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true}})
    for (const ScheduleKind schedule :
         {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1})
      for (const RecomputeKind recompute : {RecomputeKind::None, RecomputeKind::Full}) {
        Plan plan = make_plan(mixtral_style(), parallel, 4);
        plan.schedule = schedule;
        plan.recompute.kind = recompute;
        CAPTURE(to_string(parallel), static_cast<int>(schedule), static_cast<int>(recompute));
        CHECK(program_errors(lower_all(plan)) == std::vector<std::string>{});
      }
}

TEST_CASE("programs that dispatch by node are consistent under every schedule",
          "[program][experts][by_node]") {
  for (const ParallelConfig& parallel :
       {ParallelConfig{.pp = 2, .dp = 4, .ep = 4},
        ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .ep = 4, .sp = true},
        ParallelConfig{.tp = 2, .pp = 2, .dp = 4, .ep = 4, .etp = 2, .sp = true},
        ParallelConfig{.cp = 2, .dp = 4, .ep = 8}})
    for (const ScheduleKind schedule :
         {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1})
      for (const RecomputeKind recompute :
           {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}) {
        Plan plan = make_plan(mixtral_style(), parallel, 4);
        plan.expert_node_ranks = 2;
        if (parallel.pp > 1) plan.schedule = schedule;
        plan.recompute.kind = recompute;
        CAPTURE(to_string(parallel), static_cast<int>(schedule), static_cast<int>(recompute));
        REQUIRE(broken_rule(plan).empty());
        const std::vector<Program> programs = lower_all(plan);
        CHECK(program_errors(programs) == std::vector<std::string>{});
        CHECK(groups_used(programs.front()).contains(Group::EpAcross));
        CHECK(groups_used(programs.front()).contains(Group::EpWithin));
        CHECK_FALSE(groups_used(programs.front()).contains(Group::Ep));
      }
}

TEST_CASE("between nodes a token is counted once for each node that has experts of it",
          "[program][experts][by_node]") {
  Plan plan = make_plan(mixtral_style(), {.dp = 8, .ep = 8}, 1);
  CHECK(expert_nodes(plan) == 1);
  CHECK(forwarded_tokens_bound(plan) == 0);
  CHECK(busiest_forwarded(plan) == 0);
  plan.expert_node_ranks = 4;
  CHECK(expert_nodes(plan) == 2);
  CHECK(forwarded_tokens_bound(plan) == 2 * 16);
  // The second of two experts is on the first one's node in 3 of 7 cases.
  CHECK(expected_expert_nodes(plan) == Approx(2 - 3.0 / 7));
  CHECK(busiest_forwarded(plan) == 26);  // 16 tokens, 11 / 7 each, rounded up
  plan.expected_expert_imbalance = 1.5;  // no more than all
  CHECK(busiest_forwarded(plan) == 32);
  plan.expected_expert_imbalance = 1;

  const auto bytes = [&](const std::string& name) {
    const Program program = lower(plan, 0);
    return message_bytes(program, program.instances[instances_named(program, name).front()]);
  };
  for (const char* name :
       {"dispatch.node_all_to_all", "combine.node_all_to_all",
        "dispatch.node_all_to_all.input_grad", "combine.node_all_to_all.input_grad"})
    CHECK(bytes(name) == 26 * 64 * 4);
  for (const char* name : {"dispatch.node_choices", "dispatch.node_probabilities",
                           "dispatch.node_probabilities.input_grad"})
    CHECK(bytes(name) == 26 * 2 * 4);
  CHECK(bytes("dispatch.all_to_all") == 32 * 64 * 4);  // inside a node, for every expert
}

TEST_CASE("the expected nodes of a token are those of routers that choose at random",
          "[program][experts][by_node]") {
  std::mt19937 random(5);
  Plan plan = make_plan(mixtral_style());
  struct Case {
    int experts, top_k, groups, top_groups, ep, node_ranks;
  };
  for (const Case& one : {Case{64, 6, 1, 1, 16, 4}, Case{256, 8, 8, 4, 64, 8},
                          Case{256, 8, 8, 4, 32, 8}, Case{64, 4, 4, 2, 16, 2}}) {
    plan.model.moe->num_experts = one.experts;
    plan.model.moe->top_k = one.top_k;
    plan.model.moe->router.num_groups = one.groups;
    plan.model.moe->router.top_groups = one.top_groups;
    plan.parallel = {.dp = one.ep, .ep = one.ep};
    plan.expert_node_ranks = one.node_ranks;
    const int held = one.experts / expert_nodes(plan), group = one.experts / one.groups;
    constexpr int kTokens = 20000;
    std::int64_t nodes = 0;
    for (int t = 0; t < kTokens; ++t) {
      std::vector<int> groups(static_cast<std::size_t>(one.groups)), eligible;
      std::iota(groups.begin(), groups.end(), 0);
      std::shuffle(groups.begin(), groups.end(), random);
      for (int g = 0; g < one.top_groups; ++g)
        for (int x = 0; x < group; ++x)
          eligible.push_back(groups[static_cast<std::size_t>(g)] * group + x);
      std::shuffle(eligible.begin(), eligible.end(), random);
      std::set<int> met;
      for (int k = 0; k < one.top_k; ++k) met.insert(eligible[static_cast<std::size_t>(k)] / held);
      nodes += std::ssize(met);
    }
    CAPTURE(one.experts, one.groups, one.ep, one.node_ranks);
    CHECK(expected_expert_nodes(plan) ==
          Approx(static_cast<double>(nodes) / kTokens).epsilon(0.01));
  }
}

TEST_CASE("tokens in FP8 take a byte and a scale for each 128 of their numbers",
          "[program][experts][by_node]") {
  Plan plan = make_plan(mixtral_style(), {.dp = 4, .ep = 4}, 1);
  plan.workload.precision = DType::BF16;
  plan.expert_dispatch_fp8 = true;
  REQUIRE(broken_rule(plan).empty());
  for (const int node_ranks : {0, 2}) {
    plan.expert_node_ranks = node_ranks;
    const std::vector<Program> programs = lower_all(plan);
    CHECK(program_errors(programs) == std::vector<std::string>{});
    const auto bytes = [&](const std::string& name) {
      const Program& program = programs.front();
      return message_bytes(program, program.instances[instances_named(program, name).front()]);
    };
    CHECK(bytes("dispatch.all_to_all") == 32 * (64 + 4));
    for (const char* name :
         {"combine.all_to_all", "dispatch.all_to_all.input_grad", "combine.all_to_all.input_grad"})
      CHECK(bytes(name) == 32 * 64 * 2);
    if (node_ranks == 0) continue;
    CHECK(bytes("dispatch.node_all_to_all") == busiest_forwarded(plan) * (64 + 4));
    CHECK(bytes("dispatch.node_all_to_all.input_grad") == busiest_forwarded(plan) * 64 * 2);
  }
  plan.workload.precision = DType::F32;
  CHECK_THAT(broken_rule(plan),
             Contains("use precision bf16") && Contains("use expert_dispatch_fp8 = false"));
  plan.workload.precision = DType::BF16;
  plan.expert_node_ranks = 0;
  plan.parallel = {.dp = 4};
  CHECK_THAT(broken_rule(plan), Contains("ep = 1"));
}

TEST_CASE("nodes that do not divide an ep group are refused with the nearest that do",
          "[program][experts][by_node]") {
  Plan plan = make_plan(mixtral_style(), {.dp = 8, .ep = 8});
  for (const int wrong : {1, 3, 8, 16}) {
    plan.expert_node_ranks = wrong;
    CHECK_THAT(broken_rule(plan), Contains("expert_node_ranks (" + std::to_string(wrong)) &&
                                      Contains(wrong > 3 ? "nearest: 4" : "nearest: 2"));
  }
  plan.expert_node_ranks = 4;
  CHECK(broken_rule(plan).empty());
  plan.parallel = {.dp = 8, .ep = 2};  // of two ranks no node has several and is one of several
  CHECK_THAT(broken_rule(plan), Contains("nearest: 0"));
  plan = make_plan(llama_style(), {.dp = 2});
  plan.expert_node_ranks = 2;
  CHECK_THAT(broken_rule(plan), Contains("expert_node_ranks needs a model with experts"));
}

TEST_CASE("plans that experts do not fit are refused with the nearest that they do",
          "[program][experts]") {
  Plan plan = make_plan(mixtral_style(), {.dp = 6, .ep = 6});
  CHECK_THAT(broken_rule(plan), Contains("num_experts (8) is not divisible by ep (6)"));
  plan = make_plan(mixtral_style(), {.dp = 3, .etp = 3});
  CHECK_THAT(broken_rule(plan), Contains("expert_ffn_size (32) is not divisible by etp (3)"));
  plan = make_plan(mixtral_style(), {.tp = 2});
  CHECK_THAT(broken_rule(plan), Contains("needs sp"));
  plan = make_plan(llama_style(), {.dp = 2, .ep = 2});
  CHECK_THAT(broken_rule(plan), Contains("use ep = 1"));
  plan = make_plan(mixtral_style());
  plan.expert_imbalance = 0.5;
  CHECK_THAT(broken_rule(plan), Contains("expert_imbalance (0.5)"));
  plan.expert_imbalance = 2;
  CHECK(broken_rule(plan).empty());
  plan.model.moe->router.score = models::RouterScore::Sigmoid;
  plan.model.moe->router.z_loss_coefficient = 0.01;
  CHECK_THAT(broken_rule(plan), Contains("z-loss of a sigmoid router"));
}

}  // namespace meshplan::program::test
