#pragma once

#include <functional>

#include "program/certificate/twin_run.hpp"
#include "program/program.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/execute/device.hpp"

namespace meshplan::runtime {

class StatusBoard;

/// Edits the lowered program of a rank: how tests plant bugs that a certificate must see.
using Mutation = std::function<void(program::Program&)>;

struct TwinRunOptions {
  int num_steps = 1;
  std::uint64_t seed = 1;
  StatusBoard* status = nullptr;  // may be null
  /// Leaves out the weights of frozen parameters, of which a run in 16 bits has none in fp32.
  bool trained_only = false;
  /// Gradients are those that compression delivered, with what it lost. No weight may move then.
  bool compressed = false;
};

/// Trains a small plan on its own tokens, and checks messages and copies on the way (settle.hpp,
/// copies.hpp). Collective over `world`, whose size is the plan's; the result is complete on every
/// rank, but the exact checks on rank 0. Messages are those in host memory: a device's too if it
/// exchanges through the host, but not what NCCL sends.
/// @param mutate  tests only
program::TwinRun run_twin(const program::Plan& plan, const TwinRunOptions& options,
                          Communicator& world, Device& device, const Mutation& mutate = {});

}  // namespace meshplan::runtime
