#include "program/compression/compression.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "checks/program_errors.hpp"
#include "program/checks/check.hpp"
#include "program/cost/cost.hpp"
#include "program/inspect.hpp"
#include "program/lower/lower.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plans.hpp"
#include "program/shard_layout.hpp"

namespace meshplan::program::test {
namespace {

using Catch::Contains;

Plan compressed(CompressionKind kind, const ParallelConfig& parallel, double ratio = 0.125) {
  Plan plan = make_plan(llama_style(), parallel, 4);
  plan.compression = {.kind = kind, .ratio = ratio};
  return plan;
}

/// Bytes that a rank passes to collectives of the dp lane over `region`.
std::int64_t sent_bytes(const Program& program, Collective collective) {
  std::int64_t bytes = 0;
  for (const OperationInstance& instance : program.instances) {
    const auto* flat = std::get_if<FlatCollectiveOp>(&operation_of(program, instance).work);
    if (flat != nullptr && flat->region == Region::CompressedGradients &&
        flat->collective.collective == collective)
      bytes += message_bytes(program, instance);
  }
  return bytes;
}

int count_all_reduces_of_gradients(const Program& program) {
  return static_cast<int>(std::ranges::count_if(program.instances, [&](const auto& instance) {
    const auto* flat = std::get_if<FlatCollectiveOp>(&operation_of(program, instance).work);
    return flat != nullptr && flat->region == Region::Gradients &&
           flat->collective.group == Group::DpCp;
  }));
}

std::string violation(const Plan& plan) {
  const auto violations = check(plan);
  return violations.empty() ? "" : violations.front().rule + ": " + violations.front().message;
}

}  // namespace

TEST_CASE("int8 sends a byte an element each way, and scales", "[program][compression]") {
  const Program program = lower(compressed(CompressionKind::Int8, {.dp = 4}), 0);
  const std::int64_t elements = program.parameter_elements;
  CHECK(count_all_reduces_of_gradients(program) == 0);
  // 4 bytes a block of 256; records are filled up to 64 bytes, at most 128 a record and bucket.
  const std::int64_t scales = elements / 64;
  const auto slack = 4 * 128 * std::ssize(program.buckets);
  CHECK(sent_bytes(program, Collective::AllToAll) >= elements + scales);
  CHECK(sent_bytes(program, Collective::AllToAll) <= elements + scales + slack);
  // A rank passes its own part to the gather.
  CHECK(4 * sent_bytes(program, Collective::AllGather) ==
        sent_bytes(program, Collective::AllToAll));
  CHECK(region_bytes(program, Region::CompressionErrors) == 4 * elements);
  CHECK(region_bytes(program, Region::SumErrors) == elements);
}

TEST_CASE("experts are summed over the ranks that hold them, and have errors of their own",
          "[program][compression]") {
  const auto expert_elements = [](const Program& program) {
    std::int64_t elements = 0;
    for (const Bucket& bucket : program.buckets)
      elements += bucket.expert() ? bucket.range.size() : 0;
    return elements;
  };
  for (const auto& [ep, over] : {std::pair{2, 2}, {4, 1}}) {
    Plan plan = compressed(CompressionKind::Int8, {.dp = 4, .ep = ep});
    plan.model = models::load_preset("tiny-moe");
    const Program program = lower(plan, 0);
    const std::int64_t experts = expert_elements(program);
    const std::int64_t dense = program.parameter_elements - experts;
    CHECK(experts > 0);
    for (const OperationInstance& instance : program.instances) {
      const auto* flat = std::get_if<FlatCollectiveOp>(&operation_of(program, instance).work);
      if (flat == nullptr || flat->region != Region::CompressedGradients) continue;
      const Bucket& bucket = program.buckets[static_cast<std::size_t>(*flat->bucket)];
      CHECK(flat->collective.group == (bucket.expert() ? Group::ExpertDp : Group::DpCp));
    }
    // Experts of one rank each have nobody to be summed with.
    CHECK(region_bytes(program, Region::CompressionErrors) ==
          4 * (dense + (over > 1 ? experts : 0)));
    CHECK(region_bytes(program, Region::SumErrors) == dense + (over > 1 ? 2 * experts : 0));
  }
}

TEST_CASE("top-k sends an index and a value for each that it keeps", "[program][compression]") {
  const Program program = lower(compressed(CompressionKind::TopK, {.dp = 4}, 0.125), 0);
  CHECK(sent_bytes(program, Collective::AllGather) == program.parameter_elements / 8 * 8);
  CHECK(sent_bytes(program, Collective::AllToAll) == 0);
  CHECK(region_bytes(program, Region::SumErrors) == 0);
}

TEST_CASE("owners of ZeRO need no second exchange", "[program][compression]") {
  Plan plan = compressed(CompressionKind::Int8, {.dp = 4});
  plan.zero_stage = 1;
  const Program program = lower(plan, 0);
  CHECK(sent_bytes(program, Collective::AllGather) == 0);
  CHECK(sent_bytes(program, Collective::AllToAll) > 0);
  CHECK(region_bytes(program, Region::SumErrors) == 0);
}

TEST_CASE("with ZeRO-2 units are compressed micro-batch by micro-batch, each owner's part for it",
          "[program][compression]") {
  for (const auto kind : {CompressionKind::Int8, CompressionKind::TopK})
    for (const int stage : {2, 3}) {
      Plan plan = compressed(kind, {.dp = 4}, 0.125);
      plan.zero_stage = stage;
      const Program program = lower(plan, 0);
      CHECK(program_errors({program}).empty());
      std::int64_t streamed = 0, once = 0;
      for (const Bucket& bucket : program.buckets)
        (bucket.unit ? streamed : once) += bucket.range.size();
      CHECK(streamed > 0);
      const std::int64_t elements = plan.num_microbatches() * streamed + once;
      const std::int64_t bytes = kind == CompressionKind::Int8 ? elements : elements / 8 * 8;
      CHECK(sent_bytes(program, Collective::AllToAll) >= bytes);
      CHECK(sent_bytes(program, Collective::AllToAll) <= bytes + bytes / 8);
      CHECK(sent_bytes(program, Collective::AllGather) == 0);
      CHECK(region_bytes(program, Region::CompressionErrors) == 4 * program.parameter_elements);
      CHECK(region_bytes(program, Region::SumErrors) == 0);
      for (const OperationInstance& instance : program.instances) {
        const Operation& operation = operation_of(program, instance);
        const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work);
        if (flat != nullptr) CHECK(flat->collective.collective != Collective::ReduceScatter);
        const auto* step = std::get_if<StepOp>(&operation.work);
        if (step != nullptr) CHECK(step->work != StepWork::AccumulateGradients);
      }
    }
}

TEST_CASE("hybrid sharding compresses between the shard groups alone", "[program][compression]") {
  for (const int stage : {1, 2, 3}) {
    Plan plan = compressed(CompressionKind::Int8, {.dp = 8});
    plan.workload.global_batch_size = 8;
    plan.zero_stage = stage;
    plan.zero_shard_group = 2;
    const Program program = lower(plan, 0);
    CHECK(program_errors({program}).empty());
    int scatters = 0;
    for (const OperationInstance& instance : program.instances) {
      const auto* flat = std::get_if<FlatCollectiveOp>(&operation_of(program, instance).work);
      if (flat == nullptr) continue;
      if (flat->region == Region::CompressedGradients)
        CHECK(flat->collective.group == Group::ZeroReplicas);
      if (flat->collective.collective == Collective::ReduceScatter) {
        CHECK(flat->collective.group == Group::ZeroShards);
        ++scatters;
      }
    }
    CHECK(scatters > 0);
    // Half of the gradients, once a step, and a quarter of that in sums.
    const std::int64_t owned = program.parameter_elements / 2;
    CHECK(sent_bytes(program, Collective::AllToAll) >= owned);
    CHECK(sent_bytes(program, Collective::AllToAll) <= owned + owned / 8);
    CHECK(region_bytes(program, Region::CompressionErrors) == 4 * owned);
    CHECK(region_bytes(program, Region::SumErrors) == owned);
  }
}

TEST_CASE("blocks of compression never span two parameters", "[program][compression]") {
  for (const auto kind : {CompressionKind::Int8, CompressionKind::TopK}) {
    const Program program = lower(compressed(kind, {.tp = 2, .dp = 2, .sp = true}), 0);
    for (int index = 0; index < static_cast<int>(program.buckets.size()); ++index) {
      const Bucket& bucket = program.buckets[static_cast<std::size_t>(index)];
      const CompressedLayout layout = compressed_layout(program, index);
      for (const Parameter& parameter : program.parameters)
        if (parameter.offset >= bucket.range.begin && parameter.offset < bucket.range.end)
          CHECK((parameter.offset - bucket.range.begin) % layout.block == 0);
      CHECK(layout.elements % layout.block == 0);
    }
  }
}

TEST_CASE("blocks end where tp ranks begin to hold the same rows", "[program][compression]") {
  Plan plan = compressed(CompressionKind::Int8, {.tp = 4, .dp = 2});
  plan.model.num_kv_heads = 2;
  const Program program = lower(plan, 0);
  int shared_runs = 0;
  for (const Parameter& parameter : program.parameters)
    for (const CopiedRange& held : copied_ranges(parameter, 4)) {
      if (held.copies == 1 || !parameter.shard_dim) continue;
      const FlatRange rows{parameter.offset + held.range.begin, parameter.offset + held.range.end};
      const FlatRange bucket = program.buckets[static_cast<std::size_t>(parameter.bucket)].range;
      const auto runs = block_runs(program, parameter.bucket, bucket);
      std::int64_t next_block = 0;
      for (const BlockRun& run : runs) {
        CHECK(run.first_block == next_block);
        next_block += (run.range.size() + 255) / 256;
        const bool before = run.range.end <= rows.begin;
        const bool behind = run.range.begin >= rows.end;
        const bool inside = run.range.begin == rows.begin && run.range.end >= rows.end;
        CHECK((before || behind || inside));
        shared_runs += inside ? 1 : 0;
      }
      CHECK(runs.front().range.begin == bucket.begin);
      CHECK(runs.back().range.end == bucket.end);
    }
  CHECK(shared_runs == plan.model.num_layers);
}

TEST_CASE("fp16 keeps what was lost before a step that it may skip", "[program][compression]") {
  Plan plan = compressed(CompressionKind::Int8, {.dp = 4});
  const auto errors = [](const Program& program) {
    return region_bytes(program, Region::CompressionErrors) +
           region_bytes(program, Region::SumErrors);
  };
  const std::int64_t once = errors(lower(plan, 0));
  plan.workload.precision = DType::F16;
  const Program program = lower(plan, 0);
  CHECK(errors(program) == 2 * once);
  const Operation& last = operation_of(program, program.instances.back());
  CHECK(std::get<StepOp>(last.work).work == StepWork::SettleErrors);
}

TEST_CASE("programs with compression are whole under every plan", "[program][compression]") {
  for (const auto kind : {CompressionKind::Int8, CompressionKind::TopK})
    for (Plan plan : all_plans()) {
      if (plan.parallel.dp == 1) continue;
      plan.compression = {.kind = kind, .ratio = 0.01};
      INFO(describe(plan));
      CHECK(program_errors(lower_all(plan)).empty());
    }
}

TEST_CASE("a program without compression is what it was", "[program][compression]") {
  const Program program = lower(make_plan(llama_style(), {.dp = 4}, 4), 0);
  CHECK(region_bytes(program, Region::CompressionErrors) == 0);
  CHECK(region_bytes(program, Region::CompressedGradients) == 0);
  CHECK(count_all_reduces_of_gradients(program) == static_cast<int>(program.buckets.size()));
}

TEST_CASE("rules of compression name the values and a way out", "[program][compression]") {
  const ParallelConfig dp2{.dp = 2};
  CHECK_THAT(violation(compressed(CompressionKind::Int8, {})),
             Contains("compression: ") && Contains("dp(1)") && Contains("use dp >= 2"));
  CHECK_THAT(violation(compressed(CompressionKind::TopK, dp2, 0)),
             Contains("compression.ratio (0)") && Contains("nearest"));
  Plan plan = compressed(CompressionKind::Int8, dp2);
  CHECK(check(plan).empty());
  CHECK(parse_plan(to_json(plan), "plan").compression == plan.compression);
}

}  // namespace meshplan::program::test
