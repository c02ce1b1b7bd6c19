#include "program/zero/zero.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "checks/program_errors.hpp"
#include "program/checks/check.hpp"
#include "program/inspect.hpp"
#include "program/memory/address.hpp"
#include "program/plan/plan_names.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using test::make_plan;
using test::parameter_named;
using test::region_bytes;

Plan zero_plan(const models::ModelSpec& model, const ParallelConfig& parallel, int stage,
               int shard_group = 0) {
  Plan plan = make_plan(model, parallel, 4);
  plan.zero_stage = stage;
  plan.zero_shard_group = shard_group;
  return plan;
}

models::ModelSpec mixtral_style() {
  models::ModelSpec model = test::llama_style();
  model.ffn_size = 0;
  model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 32};
  return model;
}

std::vector<Plan> zero_plans() {
  std::vector<Plan> plans;
  for (const int stage : {1, 2, 3})
    for (const models::ModelSpec& model : {test::llama_style(), test::gpt2_style()}) {
      plans.push_back(zero_plan(model, {.dp = 3}, stage));
      plans.push_back(zero_plan(model, {.tp = 2, .dp = 2, .sp = true}, stage));
      plans.push_back(zero_plan(model, {.pp = 2, .dp = 4}, stage, 2));
      plans.push_back(zero_plan(model, {.tp = 2, .pp = 2, .dp = 2}, stage));
      plans.back().workload.precision = DType::BF16;
      plans.back().recompute.kind = RecomputeKind::Selective;
      plans.push_back(zero_plan(model, {.pp = 2, .vpp = 2, .dp = 2}, stage));
      plans.back().schedule = ScheduleKind::Interleaved;
    }
  for (const int stage : {1, 2, 3}) {
    plans.push_back(zero_plan(mixtral_style(), {.dp = 4, .ep = 2}, stage));
    plans.push_back(zero_plan(mixtral_style(), {.tp = 2, .dp = 6, .ep = 4, .sp = true}, stage, 2));
  }
  return plans;
}

std::string describe(const Plan& plan) {
  return test::describe(plan) + " zero " + std::to_string(plan.zero_stage) + " group " +
         std::to_string(plan.zero_shard_group);
}

/// Ranks of a stage with this one's parameters.
std::vector<int> ranks_of_stage(const Mesh& mesh, int stage) {
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.world_size(); ++rank)
    if (mesh.coordinates(rank).pp == stage) ranks.push_back(rank);
  return ranks;
}

}  // namespace

TEST_CASE("with ZeRO every program is valid over all stages", "[program][zero]") {
  for (const Plan& plan : zero_plans()) {
    CAPTURE(describe(plan));
    CHECK(check(plan).empty());
    CHECK(program_errors(lower_all(plan)).empty());
    CHECK(program_errors(lower_all(plan, Pass::ForwardOnly)).empty());
  }
}

TEST_CASE("every element is owned by one rank of those that share a copy", "[program][zero]") {
  for (const Plan& plan : zero_plans()) {
    const Mesh mesh = mesh_of(plan);
    for (const Program& program : lower_all(plan)) {
      CAPTURE(describe(plan), program.role.stage);
      std::int64_t end = 0;
      for (const Bucket& bucket : program.buckets) {
        CHECK(bucket.range.begin == end);
        CHECK(bucket.range.size() % bucket.shards == 0);
        CHECK(bucket.owned_elements() % 32 == 0);  // parts are aligned in bf16, too
        end = bucket.range.end;
      }
      CHECK(end == program.parameter_elements);
      for (const int rank : ranks_of_stage(mesh, program.role.stage))
        for (const Bucket& bucket : program.buckets) {
          const Group group = bucket.shards > 1 ? bucket.shard_group : Group::World;
          std::set<std::int64_t> begins;
          const auto members = bucket.shards > 1 ? mesh.group(group, rank) : std::vector<int>{rank};
          for (const int member : members) {
            const FlatRange owned = owned_range(bucket, shard_place(plan, mesh, member));
            CHECK(owned.size() == bucket.owned_elements());
            CHECK(owned.begin >= bucket.range.begin);
            CHECK(owned.end <= bucket.range.end);
            begins.insert(owned.begin);
          }
          CHECK(static_cast<int>(begins.size()) == bucket.shards);
        }
    }
  }
}

TEST_CASE("what is sharded takes a part of the memory", "[program][zero]") {
  for (const models::ModelSpec& model : {test::llama_style(), test::gpt2_style()}) {
    Plan plan = make_plan(model, {.dp = 4}, 4);
    plan.workload.precision = DType::BF16;
    const Program whole = lower(plan, 0);
    // A bucket is filled up to a multiple of 4 * 32 elements.
    const auto about_a_quarter = [&](std::int64_t part, std::int64_t all) {
      const std::int64_t gaps = std::ssize(whole.parameters) * 32 * 4;
      return 4 * part >= all && 4 * part <= all + 4 * gaps;
    };
    for (const int stage : {1, 2, 3}) {
      plan.zero_stage = stage;
      const Program program = lower(plan, 0);
      CAPTURE(model.name, stage);
      for (const Region region : {Region::MasterWeights, Region::Moment1, Region::Moment2})
        CHECK(about_a_quarter(region_bytes(program, region), region_bytes(whole, region)));
      // A tied embedding is used by several layers, and stays whole.
      const std::int64_t kept = model.tied_embeddings ? 384 * 64 : 0;
      const auto part_of = [&](Region region, std::int64_t size) {
        return about_a_quarter(region_bytes(program, region) - kept * size,
                               region_bytes(whole, region) - kept * size);
      };
      CHECK(part_of(Region::Gradients, 4) == (stage >= 2));
      CHECK(part_of(Region::Weights, 2) == (stage == 3));
      CHECK((region_bytes(program, Region::UnreducedBuckets) > 0) == (stage >= 2));
      CHECK((region_bytes(program, Region::GatheredWeights) > 0) == (stage == 3));
    }
  }
}

TEST_CASE("the norm counts every element once, whoever owns it", "[program][zero]") {
  for (const Plan& plan : zero_plans()) {
    if (plan.model.moe) continue;  // tests/runtime/parity/parity_zero_mpi_test.cpp
    const Mesh mesh = mesh_of(plan);
    std::map<std::string, std::int64_t> counted;
    for (const Program& program : lower_all(plan))
      for (const std::size_t i : test::instances_named(program, "squared_norm")) {
        const auto& step = std::get<StepOp>(operation_of(program, program.instances[i]).work);
        REQUIRE(step.bucket.has_value());
        const Bucket& bucket = program.buckets[static_cast<std::size_t>(*step.bucket)];
        for (const int rank : ranks_of_stage(mesh, program.role.stage)) {
          if (mesh.coordinates(rank).tp % step.tp_copies != 0) continue;
          if (bucket.replicas && mesh.group(*bucket.replicas, rank).front() != rank) continue;
          const FlatRange owned = owned_range(bucket, shard_place(plan, mesh, rank));
          for (const Parameter& parameter : program.parameters) {
            const std::int64_t begin = std::max({parameter.offset, step.range.begin, owned.begin});
            const std::int64_t end =
                std::min({parameter.offset + parameter.elements(), step.range.end, owned.end});
            if (begin < end) counted[parameter.name] += end - begin;
          }
        }
      }
    CAPTURE(describe(plan));
    for (const Parameter& one : lower(make_plan(plan.model), 0).parameters) {
      CAPTURE(one.name);
      std::int64_t expected = 1;
      for (const std::int64_t size : one.global_shape) expected *= size;
      if (one.name.ends_with("embed_tokens.weight") || one.name.ends_with("lm_head.weight"))
        expected = (plan.parallel.tp == 1 ? 384 : 512) * 64;  // rows that pad the vocabulary
      CHECK(counted[one.name] == expected);
    }
  }
}

TEST_CASE("updated weights are gathered one bucket ahead, before they are read",
          "[program][zero]") {
  const Program program = lower(zero_plan(test::llama_style(), {.dp = 2}, 1), 0);
  const auto gathers = test::instances_named(program, "weights[");
  REQUIRE(gathers.size() == program.buckets.size());
  CHECK(gathers.front() == 1);  // after the batch
  std::size_t before = 0;       // where the bucket before is needed
  for (const std::size_t i : gathers) {
    const auto& flat = std::get<FlatCollectiveOp>(operation_of(program, program.instances[i]).work);
    CHECK(i >= before);
    const Address all = flat_places(program, program.instances[i], flat, {}).all;
    std::size_t first_read = program.instances.size();
    for (std::size_t k = program.instances.size(); k-- > 0;)
      for (const Address& read : footprint(program, program.instances[k]).reads)
        if (read.region == Region::Weights && read.offset < all.offset + all.bytes &&
            all.offset < read.offset + read.bytes)
          first_read = k;
    CHECK(i < first_read);
    before = i;
  }
}

TEST_CASE("a unit's gradients are reduced once a micro-batch", "[program][zero]") {
  for (const int stage : {2, 3}) {
    const Program program = lower(zero_plan(test::llama_style(), {.dp = 2}, stage), 0);
    REQUIRE(program.units.size() >= 2);
    std::map<int, int> reduced, accumulated;
    for (const OperationInstance& instance : program.instances) {
      const Operation& operation = operation_of(program, instance);
      if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work);
          flat != nullptr && flat->collective.collective == Collective::ReduceScatter)
        ++reduced[*flat->bucket];
      if (const auto* step = std::get_if<StepOp>(&operation.work);
          step != nullptr && step->work == StepWork::AccumulateGradients) {
        CHECK(instance.accumulate == (accumulated[*step->bucket] > 0));
        ++accumulated[*step->bucket];
      }
    }
    for (int bucket = 0; bucket < static_cast<int>(program.buckets.size()); ++bucket) {
      CHECK(reduced[bucket] == 4);
      CHECK(accumulated[bucket] == 4);
    }
  }
}

TEST_CASE("hybrid sharding divides neighbours", "[program][zero]") {
  const Mesh mesh({.tp = 2, .dp = 4}, Mesh::kDefaultOrder, 1, 2);
  CHECK(mesh.group(Group::ZeroShards, 0) == std::vector<int>{0, 2});
  CHECK(mesh.group(Group::ZeroShards, 7) == std::vector<int>{5, 7});
  CHECK(mesh.group(Group::ZeroReplicas, 0) == std::vector<int>{0, 4});
  CHECK(mesh.groups(Group::ZeroShards).size() == 4);
  CHECK(group_size(Group::ZeroShards, mesh.config(), 1, 2) == 2);
  CHECK(group_size(Group::ZeroReplicas, mesh.config(), 1, 2) == 2);
}

TEST_CASE("a plan that ZeRO cannot divide is refused with what would do", "[program][zero]") {
  const auto message = [](const Plan& plan) {
    const auto violations = check(plan);
    return violations.empty() ? std::string() : violations.front().message;
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(message(zero_plan(test::llama_style(), {.tp = 2}, 1)),
             Contains("dp(1) * cp(1) = 1 ranks") && Contains("use zero_stage = 0"));
  CHECK_THAT(message(zero_plan(test::llama_style(), {.dp = 8}, 1, 3)),
             Contains("zero_shard_group (3)") && Contains("nearest: "));
  CHECK_THAT(message(zero_plan(test::llama_style(), {.dp = 8}, 0, 2)),
             Contains("needs zero_stage >= 1"));
  CHECK_THAT(message(zero_plan(test::llama_style(), {.dp = 2}, 4)), Contains("0, 1, 2 and 3"));
  Plan split = zero_plan(test::llama_style(), {.pp = 2, .dp = 2}, 2);
  split.schedule = ScheduleKind::ZbH1;
  CHECK_THAT(message(split), Contains("splits or overlaps") && Contains("use zero_stage = 1"));
}

TEST_CASE("whether ZeRO can stream a schedule's gradients is what its tasks say",
          "[program][zero]") {
  int streamed = 0, apart = 0;
  for (const auto& [kind, name] : EnumNames<ScheduleKind>::value)
    for (int pp : {1, 2, 4})
      for (const int microbatches : {1, 2, 4, 8, 12}) {
        Plan plan = zero_plan(test::llama_style(), {.pp = pp, .dp = 2}, 1);
        plan.schedule = kind;
        plan.parallel.vpp = fixed_chunks(kind).value_or(kind == ScheduleKind::Interleaved ? 2 : 1);
        plan.workload.global_batch_size = std::int64_t{2} * microbatches * plan.micro_batch_size;
        plan.model.num_layers = pp * plan.parallel.vpp;
        if (kind == ScheduleKind::Custom || !check(plan).empty()) continue;
        const Schedule schedule = schedule_of(plan);
        bool whole = true;
        for (const auto& tasks : schedule.tasks)
          for (const Task& task : tasks)
            whole = whole && (task.kind == TaskKind::Forward || task.kind == TaskKind::BackwardFull);
        plan.zero_stage = 2;
        INFO(name << " pp " << pp << " micro-batches " << microbatches);
        CHECK(check(plan).empty() == whole);
        ++(whole ? streamed : apart);
      }
  CHECK(streamed > 5);
  CHECK(apart > 5);
}

}  // namespace meshplan::program
