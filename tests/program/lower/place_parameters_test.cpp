#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "program/inspect.hpp"
#include "program/memory/address.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using test::has_parameter;
using test::make_plan;
using test::parameter_named;

/// An all-reduce of gradients over the data-parallel ranks, and where it is issued.
struct IssuedBucket {
  std::size_t instance = 0;
  FlatRange range;
};

std::vector<IssuedBucket> buckets_of(const Program& program) {
  std::vector<IssuedBucket> buckets;
  for (const std::size_t i : test::instances_named(program, "gradients[")) {
    const auto& work = std::get<FlatCollectiveOp>(operation_of(program, program.instances[i]).work);
    CHECK(work.collective.group == Group::DpCp);
    CHECK(work.region == Region::Gradients);
    buckets.push_back({i, work.range});
  }
  return buckets;
}

/// Index of the last instance of a block that writes gradients inside `range`.
std::size_t last_gradient_write(const Program& program, FlatRange range) {
  const Address bytes = flat_address(program, Region::Gradients, range);
  std::size_t last = 0;
  for (std::size_t i = 0; i < program.instances.size(); ++i) {
    if (!program.instances[i].layer) continue;
    for (const Address& write : footprint(program, program.instances[i]).writes)
      if (write.region == Region::Gradients && write.offset < bytes.offset + bytes.bytes &&
          bytes.offset < write.offset + write.bytes)
        last = i;
  }
  return last;
}

}  // namespace

TEST_CASE("Buckets cover every gradient once, contiguously, each when it is complete",
          "[program][parameters]") {
  for (const bool sp : {false, true}) {
    const Plan plan = make_plan(test::gpt2_style(), {.tp = 2, .pp = 2, .dp = 2, .sp = sp}, 4);
    for (const Program& program : lower_all(plan)) {
      INFO("stage " << program.role.stage << " sp " << sp);
      const auto buckets = buckets_of(program);
      REQUIRE(buckets.size() >= 3);
      std::int64_t end = 0;
      for (const IssuedBucket& bucket : buckets) {
        CHECK(bucket.range.begin == end);
        CHECK(bucket.range.size() > 0);
        end = bucket.range.end;
        CHECK(bucket.instance > last_gradient_write(program, bucket.range));
      }
      CHECK(end == program.parameter_elements);
    }
  }
}

TEST_CASE("A bucket is reduced while the layers before it still run backward",
          "[program][parameters]") {
  const Program program = lower(make_plan(test::llama_style(), {.dp = 2}), 0);
  const auto buckets = buckets_of(program);
  const std::size_t backward_ends = last_gradient_write(program, {0, program.parameter_elements});
  CHECK(buckets.front().instance < backward_ends);
  // The first one holds the head's weights, whose gradients are the first to be ready.
  CHECK(parameter_named(program, "head.lm_head.weight").offset < buckets.front().range.end);
  const auto& first = program.instances[last_gradient_write(program, buckets.front().range)];
  CHECK(program.tasks[static_cast<std::size_t>(*first.task)] == program.tasks.back());
}

TEST_CASE("A bucket closes once it reaches the asked size", "[program][parameters]") {
  Plan plan = make_plan(test::llama_style(), {.dp = 2});
  plan.bucket_bytes = 1;  // every parameter alone
  const Program apart = lower(plan, 0);
  CHECK(buckets_of(apart).size() == apart.parameters.size());
  plan.bucket_bytes = std::int64_t{1} << 40;
  CHECK(buckets_of(lower(plan, 0)).size() == 1);
  plan.bucket_bytes = 100'000;
  const auto buckets = buckets_of(lower(plan, 0));
  for (std::size_t i = 0; i + 1 < buckets.size(); ++i)
    CHECK(buckets[i].range.size() * 4 >= 100'000);
}

TEST_CASE("Without data parallelism, or in one bucket, nothing is reduced early",
          "[program][parameters]") {
  CHECK(buckets_of(lower(make_plan(test::llama_style(), {.tp = 2}), 0)).empty());
  const Program late = lower(make_plan(test::llama_style(), {.dp = 2}), 0, Pass::Training,
                             {.bucketed_gradients = false});
  const auto buckets = buckets_of(late);
  REQUIRE(buckets.size() == 1);
  CHECK(buckets.front().range == FlatRange{0, late.parameter_elements});
}

TEST_CASE("Parameters lie in the order in which their gradients become ready",
          "[program][parameters]") {
  const Program program = lower(make_plan(test::llama_style(), {.dp = 2}), 0);
  std::int64_t end = 0;
  for (const Parameter& parameter : program.parameters) {
    CHECK(parameter.offset >= end);
    end = parameter.offset + parameter.elements();
  }
  const auto offset = [&](const char* name) { return parameter_named(program, name).offset; };
  CHECK(offset("head.lm_head.weight") < offset("layers.3.mlp.down_proj.weight"));
  CHECK(offset("layers.3.input_layernorm.weight") < offset("layers.2.input_layernorm.weight"));
  CHECK(offset("layers.0.input_layernorm.weight") < offset("embedding.embed_tokens.weight"));
}

TEST_CASE("Over stages a tied embedding is held twice and its gradients are summed",
          "[program][parameters]") {
  const auto programs = lower_all(make_plan(test::gpt2_style(), {.tp = 2, .pp = 3, .dp = 2}));
  const char* name = "embedding.embed_tokens.weight";
  CHECK_FALSE(parameter_named(programs.front(), name).tied_copy);
  CHECK(parameter_named(programs.back(), name).tied_copy);
  CHECK_FALSE(has_parameter(programs[1], name));
  for (const Program* program : {&programs.front(), &programs.back()}) {
    const auto sums = test::instances_named(*program, "tied_embedding.all_reduce");
    REQUIRE(sums.size() == 1);
    const auto& sum =
        std::get<FlatCollectiveOp>(operation_of(*program, program->instances[sums.front()]).work);
    CHECK(sum.collective.group == Group::Embedding);
    CHECK(sum.range.size() == 256 * 64);  // 300 rows padded to 512, half of them here
    CHECK(sum.range.begin == parameter_named(*program, name).offset);
  }
  CHECK(test::instances_named(programs[1], "tied_embedding").empty());
}

TEST_CASE("On one stage a tied embedding is one parameter with two users",
          "[program][parameters]") {
  const Program program = lower(make_plan(test::gpt2_style(), {.tp = 2}), 0);
  CHECK(test::instances_named(program, "tied_embedding").empty());
  int tables = 0;
  for (const Parameter& parameter : program.parameters)
    tables += parameter.name.ends_with("embed_tokens.weight") ? 1 : 0;
  CHECK(tables == 1);
  CHECK_FALSE(has_parameter(program, "head.embed_tokens.weight"));
}

TEST_CASE("The gradient norm counts every parameter of the model once", "[program][parameters]") {
  models::ModelSpec one_key_head = test::gpt2_style();
  one_key_head.num_kv_heads = 1;  // its rows are held by both tp ranks, and counted on one
  for (const auto& model : {test::llama_style(), test::gpt2_style(), one_key_head}) {
    const ParallelConfig parallel{.tp = 2, .pp = 2, .dp = 2, .sp = true};
    std::map<std::string, std::int64_t> counted;  // elements of all tp ranks, by parameter
    for (const Program& program : lower_all(make_plan(model, parallel)))
      for (const std::size_t i : test::instances_named(program, "squared_norm")) {
        const auto& work = std::get<StepOp>(operation_of(program, program.instances[i]).work);
        for (const Parameter& parameter : program.parameters) {
          const std::int64_t begin = std::max(parameter.offset, work.range.begin);
          const std::int64_t end =
              std::min(parameter.offset + parameter.elements(), work.range.end);
          if (begin < end) counted[parameter.name] += (end - begin) * parallel.tp / work.tp_copies;
        }
      }
    for (const Parameter& whole : lower(make_plan(model), 0).parameters) {
      CAPTURE(whole.name);
      std::int64_t expected = 1;
      for (const std::int64_t size : whole.global_shape) expected *= size;
      if (whole.name.ends_with("embed_tokens.weight") || whole.name.ends_with("lm_head.weight"))
        expected = 512 * 64;  // padded rows included: their gradients are zero
      CHECK(counted[whole.name] == expected);
    }
  }
}

TEST_CASE("The optimizer updates every parameter once and decays matrices only",
          "[program][parameters]") {
  for (const Program& program : lower_all(make_plan(test::gpt2_style(), {.tp = 2, .pp = 2})))
    for (const Parameter& parameter : program.parameters) {
      CAPTURE(parameter.name);
      int updates = 0;
      for (const std::size_t i : test::instances_named(program, "optimizer[")) {
        const auto& work = std::get<StepOp>(operation_of(program, program.instances[i]).work);
        if (parameter.offset < work.range.begin || parameter.offset >= work.range.end) continue;
        ++updates;
        CHECK(parameter.offset + parameter.elements() <= work.range.end);
        CHECK(work.weight_decay == (parameter.global_shape.size() == 2));
      }
      CHECK(updates == 1);
    }
}

}  // namespace meshplan::program
