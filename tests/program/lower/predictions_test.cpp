// Multi-token prediction in programs: what the modules read, share and add, and that models without
// them are what they were.
#include <catch2/catch.hpp>
#include <set>

#include "program/checks/check.hpp"
#include "program/inspect.hpp"
#include "program/memory/address.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using test::block_named;
using test::has_operation;
using test::has_parameter;
using test::make_plan;
using test::parameter_named;

models::ModelSpec predicting(models::ModelSpec model, int modules) {
  model.mtp_layers = modules;
  return model;
}

const Operation& forward_named(const Block& block, std::string_view name) {
  return *std::ranges::find(block.forward, name, &Operation::name);
}

const ComputeOp& work_of(const Operation& operation) {
  return std::get<ComputeOp>(operation.work);
}

bool reduces(const Program& program, std::string_view name) {
  return has_operation(program.step_operations, name);
}

}  // namespace

TEST_CASE("Prediction modules read tokens further on", "[program][predictions]") {
  const Program program = lower(make_plan(predicting(test::llama_style(), 2)), 0);
  const Block& head = block_named(program, "head");
  for (const int module : {1, 2}) {
    const std::string prefix = "mtp." + std::to_string(module - 1) + ".";
    const Operation& lookup = forward_named(head, prefix + "embedding");
    const Value& ids = head.values[static_cast<std::size_t>(lookup.inputs.front())];
    CHECK(ids.storage == Storage::BatchIds);
    CHECK(ids.index == module);
    const Operation& loss = forward_named(head, prefix + "loss.local");
    const Value& targets = head.values[static_cast<std::size_t>(loss.inputs.back())];
    CHECK(targets.storage == Storage::BatchTargets);
    CHECK(targets.index == module);
    // Of 16 tokens the last have no target so far ahead; lambda / D is 0.1 / 2.
    CHECK(work_of(loss).attributes.scale == Approx(0.05 * 16 / (16 - module)));
  }
  // In the batch the rows of a micro-batch lie behind one another, then come the next one's.
  std::set<std::int64_t> places;
  for (std::size_t i = 0; i < program.instances.size(); ++i) {
    const OperationInstance& instance = program.instances[i];
    if (!instance.layer || !instance.microbatch) continue;
    const Operation& operation = operation_of(program, instance);
    const auto* work = std::get_if<ComputeOp>(&operation.work);
    if (work == nullptr || work->kind != ComputeKind::Embedding) continue;
    if (operation.phase != Phase::Forward) continue;
    const Address ids = address_of(program, instance, operation.inputs.front());
    CHECK(ids.bytes == 16 * 4);
    places.insert(ids.offset);
  }
  CHECK(places.size() == 3 * 8);
  CHECK(*places.rbegin() == (3 * 8 - 1) * 16 * 4);
}

TEST_CASE("Prediction modules share the head's projection and a copy of the embedding",
          "[program][predictions]") {
  const auto stages = lower_all(make_plan(predicting(test::llama_style(), 1), {.pp = 2}));
  constexpr const char* kEmbedding = "embedding.embed_tokens.weight";
  CHECK_FALSE(parameter_named(stages[0], kEmbedding).tied_copy);
  CHECK(parameter_named(stages[1], kEmbedding).tied_copy);
  CHECK(reduces(stages[0], "tied_embedding.all_reduce"));
  CHECK(reduces(stages[1], "tied_embedding.all_reduce"));
  CHECK_FALSE(has_parameter(stages[0], "head.mtp.0.eh_proj.weight"));
  CHECK(parameter_named(stages[1], "head.mtp.0.eh_proj.weight").global_shape ==
        std::vector<std::int64_t>{64, 128});
  std::set<std::string> names;
  for (const Parameter& parameter : stages[1].parameters)
    CHECK(names.insert(parameter.name).second);
  // The projection's gradient is written by the module first, and the head's own is added to it.
  std::vector<bool> accumulates;
  for (const OperationInstance& instance : stages[1].instances) {
    if (!instance.layer || instance.microbatch != 0) continue;
    const std::string& name = operation_of(stages[1], instance).name;
    if (name.ends_with("lm_head.weight_grad")) accumulates.push_back(instance.accumulate);
  }
  CHECK(accumulates == std::vector<bool>{false, true});
}

TEST_CASE("Both ends of a V share one embedding with the modules", "[program][predictions]") {
  Plan plan = make_plan(predicting(test::llama_style(), 1), {.pp = 2, .vpp = 2});
  plan.schedule = ScheduleKind::ZbV;
  const Program first = lower(plan, 0);
  REQUIRE(first.role.last_stage);
  CHECK_FALSE(parameter_named(first, "embedding.embed_tokens.weight").tied_copy);
  CHECK_FALSE(reduces(first, "tied_embedding.all_reduce"));
}

TEST_CASE("Losses of modules have a sum of their own", "[program][predictions]") {
  const auto losses = [](const Program& program) {
    for (const Operation& operation : program.step_operations)
      if (operation.name == "loss_and_norm.all_reduce")
        return std::get<FlatCollectiveOp>(operation.work).range;
    return FlatRange{};
  };
  const Plan plain = make_plan(test::llama_style(), {.pp = 2, .dp = 2});
  Plan with = plain;
  with.model.mtp_layers = 1;
  const auto loss = static_cast<std::int64_t>(Scalar::LossSum);
  CHECK(losses(lower(plain, 1)) == FlatRange{loss, loss + 2});
  CHECK(losses(lower(with, 1)) == FlatRange{loss - 1, loss + 2});
  CHECK(static_cast<std::int64_t>(Scalar::PredictionLossSum) == loss - 1);
}

TEST_CASE("Modules recompute where all layers of their stage do", "[program][predictions]") {
  Plan plan = make_plan(predicting(test::llama_style(), 1));
  plan.recompute.kind = RecomputeKind::Full;
  const auto recomputes = [](const Plan& one) {
    const Program program = lower(one, 0);
    return has_operation(block_named(program, "head").backward, "mtp.0.attention");
  };
  CHECK(recomputes(plan));
  plan.recompute.num_layers = 1;
  CHECK_FALSE(recomputes(plan));
}

TEST_CASE("Routers of modules count behind those of the layers", "[program][predictions]") {
  models::ModelSpec model = test::llama_style();
  model.ffn_size = 0;
  model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 32};
  const Plan plain = make_plan(model), with = make_plan(predicting(model, 1));
  CHECK(expert_load_elements(with) == expert_load_elements(plain) + 8);
  const Program program = lower(with, 0);
  std::set<std::int64_t> rows;
  for (const OperationInstance& instance : program.instances) {
    if (!instance.layer) continue;
    const Operation& operation = operation_of(program, instance);
    const auto* work = std::get_if<ComputeOp>(&operation.work);
    if (work != nullptr && work->kind == ComputeKind::RouterLoad)
      rows.insert(address_of(program, instance, operation.outputs.front()).offset / (8 * 4));
  }
  CHECK(rows == std::set<std::int64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("What prediction modules cannot do yet is refused by name", "[program][predictions]") {
  const auto refusal = [](const Plan& plan) {
    for (const Violation& violation : check(plan))
      if (violation.message.find("mtp_layers") != std::string::npos) return violation.message;
    return std::string();
  };
  Plan plan = make_plan(predicting(test::llama_style(), 1));
  CHECK(refusal(plan).empty());
  plan.parallel.cp = 2;
  CHECK_THAT(refusal(plan), Catch::Contains("over cp > 1"));
  plan = make_plan(predicting(test::llama_style(), 1));
  plan.workload.documents.packed = true;
  CHECK_THAT(refusal(plan), Catch::Contains("with packed documents"));
  plan = make_plan(predicting(test::llama_style(), 16));
  CHECK_THAT(refusal(plan), Catch::Contains("mtp_layers(16) of llama-style is not below "
                                            "workload.seq_len(16)"));
}

}  // namespace meshplan::program
