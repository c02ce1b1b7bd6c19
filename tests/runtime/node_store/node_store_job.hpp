// Jobs whose ranks lie on made-up nodes and keep states in the stores of these.
#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node_store/memory_saver.hpp"
#include "node_store/store_folder.hpp"
#include "runtime/node_store/recovery.hpp"
#include "runtime/weights/checkpoint_job.hpp"

namespace meshplan::test {

using runtime::MemorySaver;
using runtime::NodeStoreOptions;

/// "node-0", "node-1", ...: `per_node` ranks on each.
inline std::vector<std::string> made_up_nodes(int ranks, int per_node) {
  std::vector<std::string> nodes;
  for (int rank = 0; rank < ranks; ++rank)
    nodes.push_back("node-" + std::to_string(rank / per_node));
  return nodes;
}

/// Stores below a folder of the test's own stand for the memory of several nodes.
inline NodeStoreOptions made_up_stores(const std::string& root, int ranks, int per_node = 1) {
  return {.every = 1, .is_resumed = true, .nodes = made_up_nodes(ranks, per_node), .root = root};
}

inline std::string store_of(const NodeStoreOptions& options, const std::string& folder, int node) {
  return runtime::store_path(options.root, folder, "node-" + std::to_string(node));
}

inline runtime::RunState run_state(int step, const std::string& id = "0123456789abcdef") {
  runtime::RunState run;
  run.id = id;
  run.step = step;
  run.seed = 5;
  run.losses = {1.5, 0.1};
  return run;
}

/// A rank that trains under a plan and keeps states in its node's store.
class MemoryJob {
 public:
  MemoryJob(const Plan& plan, runtime::Communicator& group, const NodeStoreOptions& options,
            const std::string& folder, std::optional<std::int64_t> resumed_step = std::nullopt)
      : plan_(plan),
        group_(group),
        backend_(kernels::make_cpu_backend(1)),
        device_(*backend_),
        trainer_(program::lower(plan, runtime::stage_of(plan, group.rank())), std::nullopt, group,
                 device_, 5, nullptr),
        saver_(std::make_unique<MemorySaver>(trainer_.program(), trainer_.saver_place(), group,
                                             options, folder, resumed_step)) {}

  void step(int number) {
    trainer_.train_step(checkpoint_batch(plan_, trainer_.groups().coordinates().dp, number),
                        {.optimizer_step = number, .learning_rate = 1e-2});
  }
  MemorySaver& saver() { return *saver_; }
  /// The state of the rank that is least far.
  MemorySaver::State state() {
    auto worst = static_cast<std::int32_t>(saver_->state());
    const runtime::MutableBuffer buffer{&worst, 1, DType::I32};
    group_.all_reduce(buffer, buffer, runtime::ReduceOp::Max).wait();
    return static_cast<MemorySaver::State>(worst);
  }
  void save(int number, const std::string& id = "0123456789abcdef") {
    saver_->save(run_state(number, id), *backend_, trainer_.arena());
  }
  /// Returns when the copies are complete on all ranks.
  void wait() {
    while (state() == MemorySaver::State::Busy) continue;
    REQUIRE(state() == MemorySaver::State::Ready);
  }
  /// To the disk, beside the copies.
  void save_to_disk(int number, const std::string& folder) {
    runtime::CheckpointWriter writer(trainer_.program(), trainer_.saver_place(), group_, folder, 0,
                                     {}, nullptr);
    writer.save(run_state(number), *backend_, trainer_.arena());
    writer.wait();
    group_.barrier().wait();
  }
  void load(runtime::ParameterSource& source) {
    trainer_.load(source, runtime::LoadedState::All);
    source.finish();
  }
  /// Hashes of everything that training goes on from.
  std::vector<std::uint64_t> content() const {
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
  std::unique_ptr<MemorySaver> saver_;
};

/// Lines that recovery has said on rank 0.
struct Recovered {
  std::shared_ptr<runtime::RecoveredState> state;
  std::string said;
};
inline Recovered recover(runtime::Communicator& group, const NodeStoreOptions& options,
                         const std::string& folder,
                         const std::optional<runtime::RunState>& on_disk = std::nullopt) {
  Recovered recovered;
  recovered.state =
      runtime::recover_state(group, options, folder, on_disk,
                             [&](const std::string& line) { recovered.said += line + "\n"; });
  return recovered;
}

}  // namespace meshplan::test
