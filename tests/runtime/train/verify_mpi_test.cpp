// Replicas agree bit for bit, and a rank whose bits are wrong is named.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <fmt/format.h>
#include <fstream>

#include "comm/host_communicator.hpp"
#include "cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "program/lower/lower.hpp"
#include "program/shard_layout.hpp"
#include "runtime/job/run_rank.hpp"
#include "runtime/parity/parity_support.hpp"
#include "runtime/temporary_folder.hpp"
#include "runtime/train/train.hpp"
#include "train/verify.hpp"

namespace meshplan::test {
namespace {

using Catch::Contains;
using program::ParallelConfig;
using program::Region;

struct Job {
  std::unique_ptr<runtime::Communicator> world = runtime::make_host_world(mpi_session(), {});
  std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend(1);
  runtime::HostDevice device{*backend};
  runtime::Trainer trainer;
  runtime::ReplicaVerifier verifier;

  explicit Job(const program::Plan& plan)
      : trainer(program::lower(plan, runtime::stage_of(plan, world->rank())), std::nullopt, *world,
                device, 7, nullptr),
        verifier(trainer, *world) {}

  void step(int number) {
    trainer.train_step(parity_batch(trainer.program().plan, trainer.groups().coordinates()),
                       {.optimizer_step = number, .learning_rate = 1e-2});
  }

  /// The smallest change of one element, in the last box that this rank holds of the parameter.
  void corrupt(Region region, const std::string& name) {
    const auto& parameters = trainer.program().parameters;
    const auto found = std::ranges::find(parameters, name, &program::Parameter::name);
    REQUIRE(found != parameters.end());
    const auto pieces = program::matrix_pieces(*found, trainer.groups().coordinates());
    const auto& piece = pieces.back();
    const std::int64_t last =
        piece.local_offset + (piece.rows - 1) * piece.local_stride + piece.columns - 1;
    const std::int64_t element =
        region == Region::Weights ? size_of(trainer.program().plan.workload.precision) : 4;
    *(trainer.arena().region(region) + (found->offset + last) * element) ^= std::byte{1};
  }

  std::string difference() {
    try {
      verifier.verify("step 3");
    } catch (const runtime::SharedError& error) {
      return error.what();
    }
    return {};
  }
};

program::Plan plan_of(const models::ModelSpec& model, const ParallelConfig& parallel,
                      DType precision = DType::F32) {
  program::Plan plan;
  plan.model = model;
  plan.parallel = parallel;
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 8;
  plan.workload.precision = precision;
  return plan;
}

models::ModelSpec with_few_key_heads() {
  models::ModelSpec model = llama_style();
  model.num_kv_heads = 2;
  return model;
}

models::ModelSpec deeper(models::ModelSpec model) {
  model.num_layers = 4;
  return model;
}

struct Case {
  std::string what;
  program::Plan plan;
  int rank = 0;  // that is corrupted
  Region region = Region::Weights;
  std::string parameter;
  std::string message;  // part of it
};

std::vector<Case> cases() {
  return {
      {"a replica over dp", plan_of(llama_style(), {.dp = 4}), 2, Region::Weights,
       "layers.1.mlp.down_proj.weight", "on rank 2, but "},
      {"a gradient of a replica", plan_of(llama_style(), {.dp = 4}), 3, Region::Gradients,
       "layers.3.mlp.gate_up_proj.weight", "on rank 3, but "},
      {"a shard's replica", plan_of(llama_style(), {.tp = 2, .dp = 2}), 3, Region::Weights,
       "layers.0.self_attn.qkv_proj.weight", "on rank"},
      {"what tp does not shard", plan_of(llama_style(), {.tp = 4}), 1, Region::Weights,
       "layers.2.input_layernorm.weight", "on rank 1, but "},
      {"a gradient reduced for sp", plan_of(llama_style(), {.tp = 4, .sp = true}), 0,
       Region::Gradients, "layers.2.input_layernorm.weight", "on rank 0, but "},
      {"key heads on several ranks", plan_of(with_few_key_heads(), {.tp = 4}), 1, Region::Weights,
       "layers.0.self_attn.qkv_proj.weight", "ranks"},
      {"a tied embedding", plan_of(gpt2_style(), {.pp = 4}), 3, Region::Weights,
       "embedding.embed_tokens.weight", "on rank"},
      {"an fp32 master copy", plan_of(llama_style(), {.pp = 2, .dp = 2}, DType::BF16), 2,
       Region::MasterWeights, "layers.3.input_layernorm.weight", "fp32 master weight"},
  };
}

}  // namespace

TEST_CASE("ranks that hold the same agree after every step of every plan", "[verify]") {
  for (const models::ModelSpec& model :
       {llama_style(), gpt2_style(), with_few_key_heads(), deeper(gpt2_style())})
    for (const DType precision : {DType::F32, DType::BF16})
      for (const ParallelConfig& parallel :
           {ParallelConfig{.tp = 4}, ParallelConfig{.tp = 4, .sp = true}, ParallelConfig{.pp = 4},
            ParallelConfig{.dp = 4}, ParallelConfig{.tp = 2, .dp = 2, .sp = true},
            ParallelConfig{.pp = 2, .dp = 2}}) {
        Job job(plan_of(model, parallel, precision));
        INFO(model.name << " " << to_string(parallel));
        CHECK(job.difference() == "");
        for (int step = 1; step <= 2; ++step) {
          job.step(step);
          CHECK(job.difference() == "");
        }
      }
}

TEST_CASE("one wrong bit on one rank is found and named", "[verify]") {
  for (const Case& one : cases()) {
    Job job(one.plan);
    job.step(1);
    if (job.world->rank() == one.rank) job.corrupt(one.region, one.parameter);
    const std::string difference = job.difference();
    INFO(one.what);
    CHECK_THAT(difference, Contains("step 3: the ") && Contains(one.parameter) &&
                               Contains("differs between ranks that must agree") &&
                               Contains(one.message));
    CHECK_THAT(difference, Contains(one.region == Region::Gradients ? "reduced gradient"
                                    : one.region == Region::Weights ? " weight"
                                                                    : "fp32 master weight"));
    if (job.world->rank() == one.rank) job.corrupt(one.region, one.parameter);  // back
    CHECK(job.difference() == "");
  }
}

namespace {

/// Seeded: a rank whose initial values differ in one element.
class OddBackend final : public kernels::CpuBackend {
 public:
  explicit OddBackend(bool odd) : CpuBackend(1, kernels::best_cpu_isa()), odd_(odd) {}
  void run(const kernels::Operation& operation) override {
    CpuBackend::run(operation);
    const auto* values = std::get_if<kernels::RandomNormal>(&operation);
    if (values == nullptr) return;
    if (odd_) values->out[0] += 1e-6F;
    odd_ = false;
  }

 private:
  bool odd_;
};

/// What a run of one step says; empty if nothing.
std::string run_with_odd_rank(const runtime::TrainOptions& options, int odd_rank) {
  const auto world = runtime::make_host_world(mpi_session(), {});
  OddBackend backend(world->rank() == odd_rank);
  runtime::HostDevice device(backend);
  try {
    runtime::train(plan_of(llama_style(), {.dp = 4}), options, *world, device, nullptr,
                   [](const runtime::StepReport&) {});
  } catch (const runtime::SharedError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a run proves that its ranks start from the same, unless told not to", "[verify]") {
  const TemporaryFolder folder;
  const std::string text = folder.path() + "/text.txt";
  std::ofstream(text) << std::string(4096, 'a');
  runtime::TrainOptions options{.num_steps = 1, .data_path = text};
  CHECK(run_with_odd_rank(options, -1) == "");
  CHECK_THAT(run_with_odd_rank(options, 2),
             Contains("before the first step: the weight of ") && Contains("on rank 2, but "));
  options.verify_start = false;
  CHECK(run_with_odd_rank(options, 2) == "");
}

TEST_CASE("moments that differ are found at the start", "[verify]") {
  Job job(plan_of(llama_style(), {.dp = 4}));
  const std::string name = "layers.1.mlp.down_proj.weight";
  if (job.world->rank() == 3) job.corrupt(Region::Moment2, name);
  CHECK_THROWS_WITH(job.verifier.verify_state("before the first step"),
                    Contains("the second moment of " + name) && Contains("on rank 3, but "));
}

TEST_CASE("what only one rank holds is compared with nothing", "[verify]") {
  Job job(plan_of(llama_style(), {.tp = 4}));
  if (job.world->rank() == 1) job.corrupt(Region::Weights, "layers.1.mlp.down_proj.weight");
  CHECK(job.difference() == "");
}

}  // namespace meshplan::test
