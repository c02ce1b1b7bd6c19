#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "execute/arena.hpp"
#include "execute/executor.hpp"
#include "execute/groups.hpp"
#include "program/lower/lower.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/weights/parameter_source.hpp"
#include "weights/checkpoint_writer.hpp"

namespace meshplan::runtime {

/// A rank's part of a training job: its programs, memory, communicators and weights.
class Trainer {
 public:
  /// Collective over `world`, which has exactly the plan's world size and communicates in host
  /// memory; in the device's memory, the device's own communicators do.
  /// @param training  lower(plan, stage of this rank); @param evaluation  the forward-only lowering
  Trainer(program::Program training, std::optional<program::Program> evaluation,
          Communicator& world, Device& device, std::uint64_t seed, StatusBoard* status);

  StepOutcome train_step(const StepBatch& batch, const StepSettings& settings) {
    return training_executor_.run(batch, settings);
  }
  /// Mean loss of a batch, without changing the model. @throws InvariantError without an evaluation
  /// program
  double evaluate(const StepBatch& batch);

  /// Replaces what the weights (and with All the optimizer's state) were initialized to.
  void load(ParameterSource& source, LoadedState which);
  /// Whose share of the model this rank saves.
  SaverPlace saver_place() const;
  /// Which part of what ZeRO shards is this rank's.
  program::ShardPlace shard_place() const;

  Executor& executor() { return training_executor_; }
  const program::Program& program() const { return training_; }
  const Arena& arena() const { return arena_; }
  const Groups& groups() const { return groups_; }
  Device& device() { return device_; }

 private:
  program::Program training_;
  std::optional<program::Program> evaluation_;
  Device& device_;
  std::unique_ptr<Communicator> device_world_;  // null: the host's world serves
  Groups groups_;
  Arena arena_;
  Executor training_executor_;
  std::optional<Executor> evaluation_executor_;
};

/// The stage of world rank `rank`.
int stage_of(const program::Plan& plan, int rank);

}  // namespace meshplan::runtime
