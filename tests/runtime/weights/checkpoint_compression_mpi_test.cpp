// Checkpoints of runs with compressed gradients: what compression lost is saved, too.
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/weights/checkpoint_job.hpp"

namespace meshplan::test {
namespace {

using program::CompressionKind;

struct CompressedCase {
  ParallelConfig parallel;
  CompressionKind kind = CompressionKind::Int8;
  int zero_stage = 0;
  DType precision = DType::F32;
  int zero_shard_group = 0;
};

const std::vector<CompressedCase> kCompressed = {
    {{.dp = 4}, CompressionKind::Int8},
    {{.dp = 2}, CompressionKind::TopK},  // its ranks get two replicas' each, and keep no sums'
    {{.dp = 4}, CompressionKind::Int8, 1},
    {{.tp = 2, .dp = 2, .sp = true}, CompressionKind::Int8},
    {{.pp = 2, .dp = 2}, CompressionKind::TopK},
    {{.dp = 4}, CompressionKind::Int8, 0, DType::F16},
    {{.dp = 4}, CompressionKind::Int8, 3},
    {{.dp = 4}, CompressionKind::Int8, 2, DType::F32, 2},
    {{.tp = 2, .dp = 2}, CompressionKind::TopK, 2},
};

/// Experts have as many replicas as ranks that hold the same ones.
const std::vector<CompressedCase> kCompressedExperts = {
    {{.dp = 4, .ep = 2}, CompressionKind::Int8},
    {{.dp = 2}, CompressionKind::TopK},
    {{.dp = 4, .ep = 2}, CompressionKind::Int8, 1},
    {{.tp = 2, .dp = 2, .ep = 2, .sp = true}, CompressionKind::Int8},
    {{.dp = 4}, CompressionKind::Int8},
    {{.dp = 4, .ep = 2}, CompressionKind::Int8, 2},
};

Plan compressed_plan(const models::ModelSpec& model, const CompressedCase& one) {
  Plan plan = checkpoint_plan(model, one.parallel, one.precision);
  plan.compression = {.kind = one.kind, .ratio = 0.1};
  plan.zero_stage = one.zero_stage;
  plan.zero_shard_group = one.zero_shard_group;
  plan.bucket_bytes = 64 << 10;
  plan.expert_imbalance = 8;
  return plan;
}

/// What compression has lost, over all replicas and sums: by parameter.
std::map<std::string, std::vector<double>> lost(const std::string& folder) {
  std::map<std::string, std::vector<double>> sums;
  for (const auto& [name, values] : contents(folder)) {
    std::string parameter;
    if (name.starts_with("sum_error.")) parameter = name.substr(10);
    if (name.starts_with("compression_error."))
      parameter = name.substr(name.find('.', 18) + 1);  // behind the replica's number
    if (parameter.empty()) continue;
    auto& sum = sums[parameter];
    sum.resize(values.size(), 0.0);
    for (std::size_t i = 0; i < values.size(); ++i) sum[i] += double{values[i]};
  }
  return sums;
}

/// Each plan loads what the plan before it saved.
void check_same_loss_of_gradients(runtime::Communicator& world, const models::ModelSpec& model,
                                  const std::vector<CompressedCase>& chain) {
  std::map<std::string, std::vector<double>> expected;
  std::string previous;
  std::vector<std::unique_ptr<SharedFolder>> folders;
  for (const CompressedCase& one : chain) {
    folders.push_back(std::make_unique<SharedFolder>(world));
    const auto group = first_ranks(world, one.parallel.world_size());
    CAPTURE(model.name, program::to_string(one.parallel), one.zero_stage);
    if (group != nullptr) {
      CheckpointJob job(compressed_plan(model, one), *group, folders.back()->path());
      if (previous.empty())
        for (int step = 1; step <= 2; ++step) job.step(step);
      else
        job.load(previous);
      job.save(2);
      job.wait();
    }
    world.barrier().wait();
    previous = folders.back()->path() + "/step-2";
    const auto found = lost(previous);
    if (expected.empty()) expected = found;
    REQUIRE(found.size() == expected.size());
    double difference = 0, size = 0;
    for (const auto& [name, values] : expected)
      for (std::size_t i = 0; i < values.size(); ++i) {
        difference += std::pow(found.at(name)[i] - values[i], 2);
        size += values[i] * values[i];
      }
    CHECK(size > 0);
    CHECK(difference <= 1e-12 * size);  // fp32 rounding of at most four additions
  }
}

}  // namespace

TEST_CASE("what compression lost is saved: a resumed run equals an uninterrupted one",
          "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to compress
  for (const CompressedCase& one : kCompressed)
    check_resumed_equals(*world, compressed_plan(gpt2_style(), one));
  for (const CompressedCase& one : kCompressedExperts)
    check_resumed_equals(*world, compressed_plan(deepseek_style(), one));
}

TEST_CASE("what compression lost has the same sum under every plan that loads it", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;
  check_same_loss_of_gradients(*world, llama_style(), kCompressed);
  models::ModelSpec one_key_head = llama_style();
  one_key_head.num_kv_heads = 1;  // tp ranks that hold the same lose the same
  check_same_loss_of_gradients(*world, one_key_head, kCompressed);
  check_same_loss_of_gradients(*world, mixtral_style(), kCompressedExperts);
}

}  // namespace meshplan::test
