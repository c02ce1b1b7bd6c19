// What the suites of checkpoints share: plans, and ranks that train under them and save.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/host_communicator.hpp"
#include "core/hash.hpp"
#include "kernels/cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "program/lower/lower.hpp"
#include "runtime/first_ranks.hpp"
#include "runtime/parity/parity_models.hpp"
#include "runtime/temporary_folder.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "train/trainer.hpp"
#include "weights/checkpoint_writer.hpp"

namespace meshplan::test {

using program::ParallelConfig;
using program::Plan;
using program::Region;
using runtime::Checkpoint;
using runtime::CheckpointWriter;
using runtime::Trainer;

inline Plan checkpoint_plan(const models::ModelSpec& model, const ParallelConfig& parallel,
                            DType precision = DType::F32) {
  Plan plan;
  plan.model = model;
  plan.parallel = parallel;
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 4;
  plan.workload.precision = precision;
  plan.workload.optimizer.learning_rate = 1e-2;
  return plan;
}

inline std::vector<ParallelConfig> meshes_of(int ranks) {
  std::vector<ParallelConfig> all = {{},
                                     {.tp = 2},
                                     {.pp = 2},
                                     {.dp = 2},
                                     {.tp = 4, .sp = true},
                                     {.pp = 4},
                                     {.dp = 4},
                                     {.tp = 2, .pp = 2},
                                     {.tp = 2, .dp = 2, .sp = true},
                                     {.pp = 2, .dp = 2}};
  std::erase_if(all, [ranks](const ParallelConfig& c) { return c.world_size() > ranks; });
  return all;
}

inline runtime::StepBatch checkpoint_batch(const Plan& plan, int dp_rank, std::int64_t step) {
  const auto token = [&](std::int64_t sequence, std::int64_t t) {
    return static_cast<std::int32_t>((sequence * 31 + t * t * 7 + step * 13 + t) %
                                     plan.model.vocab_size);
  };
  runtime::StepBatch batch;
  for (int m = 0; m < plan.num_microbatches(); ++m) {
    const std::int64_t sequence = m * plan.parallel.dp + dp_rank;
    for (std::int64_t t = 0; t < plan.workload.seq_len; ++t) {
      batch.ids.push_back(token(sequence, t));
      batch.targets.push_back(token(sequence, t + 1));
    }
  }
  return batch;
}

/// A folder that all ranks of the job know; rank 0 owns it.
class SharedFolder {
 public:
  explicit SharedFolder(runtime::Communicator& world) : world_(world) {
    if (world.rank() == 0) own_.emplace();
    std::string path = own_ ? own_->path() : std::string();
    path.resize(256);
    world.broadcast({path.data(), std::ssize(path), DType::U8}, 0).wait();
    path_ = path.c_str();
  }
  ~SharedFolder() { world_.barrier().wait(); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  runtime::Communicator& world_;
  std::optional<TemporaryFolder> own_;
  std::string path_;
};

/// A rank that trains under a plan and saves.
class CheckpointJob {
 public:
  CheckpointJob(const Plan& plan, runtime::Communicator& group, const std::string& folder,
                int keep = 0)
      : plan_(plan),
        group_(group),
        backend_(kernels::make_cpu_backend(1)),
        device_(*backend_),
        trainer_(program::lower(plan, runtime::stage_of(plan, group.rank())), std::nullopt, group,
                 device_, 5, nullptr),
        writer_(trainer_.program(), trainer_.saver_place(), group, folder, keep,
                {{"tokenizer.json", "{}"}}, nullptr) {}

  double step(int number) {
    return trainer_
        .train_step(checkpoint_batch(plan_, trainer_.groups().coordinates().dp, number),
                    {.optimizer_step = number, .learning_rate = 1e-2})
        .loss;
  }
  void save(int number) {
    runtime::RunState run;
    run.step = number;
    run.next_sequence = plan_.workload.global_batch_size * number;
    run.seed = 5;
    run.losses = {1.5, 0.1};
    writer_.save(run, *backend_, trainer_.arena());
  }
  void wait() {
    writer_.wait();
    group_.barrier().wait();  // rank 0 has completed it
  }
  void load(const std::string& checkpoint) {
    Checkpoint source(checkpoint);
    trainer_.load(source, runtime::LoadedState::All);
  }
  /// The first fp32 value of a region of this rank.
  void set_first(Region region, float value) {
    std::memcpy(trainer_.arena().region(region), &value, sizeof value);
  }
  /// Hashes of everything that training goes on from.
  std::vector<std::uint64_t> state() const {
    std::vector<std::uint64_t> hashes;
    for (const Region region : {Region::Weights, Region::MasterWeights, Region::Moment1,
                                Region::Moment2, Region::CompressionErrors, Region::SumErrors}) {
      const auto bytes =
          trainer_.program().memory.regions[static_cast<std::size_t>(region)].bytes();
      hashes.push_back(content_hash(
          std::span(trainer_.arena().region(region), static_cast<std::size_t>(bytes))));
    }
    return hashes;
  }

 private:
  Plan plan_;
  runtime::Communicator& group_;
  std::unique_ptr<kernels::Backend> backend_;
  runtime::HostDevice device_;
  Trainer trainer_;
  CheckpointWriter writer_;
};

/// All values of a checkpoint, unsharded.
inline std::map<std::string, std::vector<float>> contents(const std::string& folder) {
  Checkpoint checkpoint(folder);
  std::map<std::string, std::vector<float>> all;
  for (const auto& tensor : checkpoint.index().manifest.tensors) {
    const auto box = runtime::whole_box(tensor.shape);
    auto& values = all[tensor.state + "." + tensor.parameter];
    values.resize(static_cast<std::size_t>(box.elements()));
    checkpoint.read(
        tensor.state, tensor.parameter,
        {.data = values.data(), .box = box, .strides = runtime::dense_strides(tensor.shape)});
  }
  return all;
}

/// A run under `plan` saves after two of four steps; what goes on from there under `then`, which
/// must do the same arithmetic, has the same losses and in the end the same bits.
inline void check_resumed_equals(runtime::Communicator& world, const Plan& plan, const Plan& then) {
  const SharedFolder folder(world);
  const auto group = first_ranks(world, plan.parallel.world_size());
  if (group == nullptr) return;
  CAPTURE(plan.model.name, program::to_string(plan.parallel), plan.zero_stage,
          name_of(plan.workload.precision), plan.offload_optimizer, then.offload_optimizer);
  std::vector<double> losses;
  std::vector<std::uint64_t> end;
  {
    CheckpointJob job(plan, *group, folder.path());
    for (int step = 1; step <= 2; ++step) job.step(step);
    job.save(2);  // in the background: the next step must not change what is saved
    for (int step = 3; step <= 4; ++step) losses.push_back(job.step(step));
    job.wait();
    end = job.state();
  }
  CheckpointJob resumed(then, *group, folder.path());
  resumed.load(runtime::resolve_checkpoint(folder.path()));
  CHECK(resumed.state() != end);
  for (int step = 3; step <= 4; ++step)
    CHECK(resumed.step(step) == losses[static_cast<std::size_t>(step) - 3]);
  CHECK(resumed.state() == end);
}
inline void check_resumed_equals(runtime::Communicator& world, const Plan& plan) {
  check_resumed_equals(world, plan, plan);
}

}  // namespace meshplan::test
