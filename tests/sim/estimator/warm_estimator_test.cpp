// What an estimator remembers depends on fields of a plan. Here every field of the plan's file
// changes in turn: an estimator that has just priced the plan must price the changed one as one
// that knows nothing.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "program/checks/check.hpp"
#include "program/plan_file/plan_file.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/plans.hpp"
#include "sim/random_plans.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "support/cases.hpp"

namespace meshplan::sim {
namespace {

using nlohmann::ordered_json;
using Pointer = ordered_json::json_pointer;

struct Base {
  program::Plan plan;
  Cluster cluster;
};

Base base(const char* model, program::ParallelConfig parallel, const char* cluster) {
  Base made{tiny_plan(parallel, 16),
            with_ranks(load_cluster_preset(cluster), parallel.world_size())};
  made.plan.model = models::load_preset(model);
  made.plan.workload.precision = DType::BF16;
  made.plan.workload.global_batch_size = 64;
  made.plan.bucket_bytes = 1 << 20;
  return made;
}

/// Between them they read every field.
std::vector<Base> bases() {
  std::vector<Base> all;
  all.push_back(base("tiny-llama", {.tp = 2, .pp = 2, .dp = 4}, "dgx-h100"));
  all.back().plan.recompute.kind = program::RecomputeKind::Selective;
  all.push_back(base("tiny-llama", {.tp = 2, .dp = 4}, "cpu-host"));
  all.back().plan.compression.kind = program::CompressionKind::TopK;
  all.back().cluster.communication.progress_overhead_percent = 10;
  all.push_back(base("tiny-llama", {.cp = 4, .dp = 2}, "dgx-h100"));
  all.back().plan.workload.seq_len = 2048;
  all.back().plan.workload.documents = {
      .packed = true, .end_of_document = 0, .expected_lengths = {500, 1800}};
  all.push_back(all.back());
  all.back().plan.max_tokens_per_rank = 1024;
  all.push_back(base("tiny-moe", {.tp = 2, .dp = 4, .ep = 4, .sp = true}, "dgx-h100"));
  all.push_back(all.back());
  all.back().plan.expert_node_ranks = 2;
  all.back().plan.workload.precision = DType::BF16;
  all.push_back(base("tiny-llama", {.dp = 8}, "dgx-h100"));
  all.back().plan.zero_stage = 3;
  all.back().plan.workload.seq_len = 256;
  all.push_back(all.back());
  all.back().plan.offload_optimizer = true;
  all.push_back(base("tiny-llama", {.pp = 2, .dp = 4}, "dgx-h100"));
  all.back().plan.schedule = program::ScheduleKind::Interleaved;
  all.back().plan.parallel.vpp = 2;
  all.back().plan.recompute.kind = program::RecomputeKind::Full;
  all.push_back(base("tiny-llama", {.pp = 2, .dp = 4}, "dgx-h100"));
  all.back().plan.schedule = program::ScheduleKind::Custom;
  all.back().plan.workload.global_batch_size = 8;
  all.back().plan.custom_schedule = {"0F0,0F1,0B0,0B1", "1F0,1F1,1B0,1B1"};
  return all;
}

void add_leaves(const ordered_json& value, const Pointer& at, std::vector<Pointer>& leaves) {
  if (!value.is_object()) {
    leaves.push_back(at);
    return;
  }
  for (const auto& [key, child] : value.items()) add_leaves(child, at / key, leaves);
}

/// Values that a field might have instead.
std::vector<ordered_json> others(const ordered_json& value) {
  if (value.is_boolean()) return {!value.get<bool>()};
  if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    return {2 * number, number / 2, number + 1, number - 1, 0, 4};
  }
  if (value.is_number()) return {2 * value.get<double>(), value.get<double>() / 2};
  if (value.is_null()) return {1, 16};
  if (value.is_array())
    return {{3, 5},
            {2, 1, 3, 2},
            {1, 0},
            {16, 1024},
            {"layers.0-3.*"},
            {"mlp", "norms"},
            {"0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"}};
  return {"adam",    "sgd",  "constant",       "gpipe",          "1f1b",       "zb-h1",
          "none",    "int8", "ring",           "ulysses",        "full",       "selective",
          "fp32",    "fp16", "pp-dp-tp-cp-ep", "tp-pp-cp-ep-dp", "layer_norm", "gelu",
          "learned", "own",  "cudnn"};
}

/// The change, and where it gives another number of ranks the same with another axis to match.
std::vector<ordered_json> with_equal_ranks(const ordered_json& changed, int ranks) {
  std::vector<ordered_json> all = {changed};
  for (const char* axis : {"tp", "cp", "pp", "dp"}) {
    ordered_json other = changed;
    const auto degree = [&](const char* name) { return changed["parallel"][name].get<int>(); };
    const int world = degree("tp") * degree("cp") * degree("pp") * degree("dp");
    if (world <= 0 || ranks * degree(axis) % world != 0) continue;
    other["parallel"][axis] = ranks * degree(axis) / world;
    if (other != changed) all.push_back(std::move(other));
  }
  return all;
}

/// Absent: not a plan for so many ranks.
std::optional<program::Plan> valid(const ordered_json& json, int ranks) {
  try {
    program::Plan plan = program::parse_plan(json.dump(), "test");
    if (plan.parallel.world_size() == ranks && program::check(plan).empty()) return plan;
  } catch (const ConfigError&) {
  }
  return std::nullopt;
}

bool is_named(const Pointer& at, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(
      names, [&](std::string_view name) { return at.to_string().starts_with(name); });
}

/// Fields that say nothing of what is computed.
bool is_label(const Pointer& at) {
  return is_named(
      at, {"/schema_version", "/cluster", "/prediction", "/model/schema_version", "/model/name"});
}

/// Not every model has another valid value of each of these; when one changes, everything is
/// forgotten.
bool is_of_model(const Pointer& at) {
  return is_named(at, {"/model/"});
}

/// Numbers that a step is computed with, whatever they are.
bool is_free(const Pointer& at) {
  return is_named(at, {"/workload/optimizer/", "/workload/documents/end_of_document",
                       "/workload/documents/pad_multiple", "/stack/software", "/uneven_batch"}) &&
         !is_named(at, {"/workload/optimizer/kind"});
}

void check_equal(const StepPrediction& found, const StepPrediction& expected) {
  CHECK(found.step_time_s == expected.step_time_s);
  CHECK(found.seconds == expected.seconds);
  CHECK(found.peak_memory_bytes == expected.peak_memory_bytes);
  CHECK(found.largest_stage == expected.largest_stage);
  CHECK(found.mfu == expected.mfu);
}

struct Seen {
  std::set<std::string> fields;
  std::set<std::string> changed;           // those with another valid value
  std::set<std::string> priced_otherwise;  // and another price then
};

void change_every_field(const Base& base, Seen& seen) {
  const int ranks = base.plan.parallel.world_size();
  auto file = ordered_json::parse(program::to_json(base.plan));
  file.erase("model_hash");  // it would not be the changed model's
  const StepPrediction expected = Estimator(base.cluster).estimate(base.plan);
  Estimator warm(base.cluster);
  std::vector<Pointer> leaves;
  add_leaves(file, Pointer(), leaves);
  for (const Pointer& leaf : leaves) {
    const std::string field = leaf.to_string();
    if (is_label(leaf) || (is_of_model(leaf) && seen.changed.contains(field))) continue;
    seen.fields.insert(field);
    for (const ordered_json& value : others(file[leaf])) {
      ordered_json other = file;
      other[leaf] = value;
      for (const ordered_json& candidate : with_equal_ranks(other, ranks)) {
        const std::optional<program::Plan> plan = valid(candidate, ranks);
        if (!plan || candidate == file) continue;
        INFO(field << " = " << candidate[leaf] << " of " << to_string(base.plan.parallel));
        check_equal(warm.estimate(base.plan), expected);
        const StepPrediction alone = Estimator(base.cluster).estimate(*plan);
        check_equal(warm.estimate(*plan), alone);
        seen.changed.insert(field);
        if (alone.step_time_s != expected.step_time_s ||
            alone.peak_memory_bytes != expected.peak_memory_bytes)
          seen.priced_otherwise.insert(field);
      }
    }
  }
}

}  // namespace

TEST_CASE("What was not asked for of a plan is there when it is", "[sim][estimator]") {
  const int kPlans = testing::random_cases(200);
  constexpr double kNone = 0;
  testing::Random random(20261126);
  for (int i = 0; i < kPlans; ++i) {
    const RandomPlan one = random_plan(random);
    INFO(to_string(one.plan.parallel) << " on " << one.cluster.name);
    const StepPrediction expected = Estimator(one.cluster).estimate(one.plan);
    Estimator estimator(one.cluster);
    const StepPrediction memory =
        estimator.estimate(one.plan, {.step_time_s = kNone, .busy = false});
    CHECK(memory.at_least);
    CHECK(memory.peak_memory_bytes == expected.peak_memory_bytes);
    CHECK(memory.state_bytes == expected.state_bytes);
    CHECK(memory.kept_bytes == expected.kept_bytes);
    const StepPrediction tasks = estimator.estimate(one.plan, {.step_time_s = kNone});
    CHECK(tasks.at_least);
    CHECK(tasks.busy == expected.busy);
    check_equal(estimator.estimate(one.plan), expected);
    check_equal(estimator.estimate(one.plan), expected);
  }
}

TEST_CASE("A plan changed in any field is estimated as alone", "[sim][estimator]") {
  Seen seen;
  for (const Base& base : bases()) {
    for (const program::Violation& broken : program::check(base.plan)) FAIL(broken.message);
    change_every_field(base, seen);
  }
  for (const std::string& field : seen.fields) {
    if (is_of_model(Pointer(field))) continue;
    INFO("no base has another valid value, or one that costs something else, of " << field);
    CHECK(seen.changed.contains(field));
    CHECK((seen.priced_otherwise.contains(field) || is_free(Pointer(field))));
  }
}

}  // namespace meshplan::sim
