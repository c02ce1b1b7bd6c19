#pragma once

#include <functional>

#include "kernels/backend.hpp"
#include "program/certificate/twin_run.hpp"
#include "program/program.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

class StatusBoard;

/// Edits the lowered program of a rank: how tests plant bugs that a certificate must see.
using Mutation = std::function<void(program::Program&)>;

struct TwinRunOptions {
  int num_steps = 1;
  std::uint64_t seed = 1;
  StatusBoard* status = nullptr;  // may be null
  /// Gradients are those that compression delivered, with what it lost. No weight may move then.
  bool compressed = false;
};

/// Trains a small plan on its own tokens, and checks messages and copies on the way (settle.hpp,
/// copies.hpp). Collective over `world`, whose size is the plan's; the result is complete on every
/// rank, but the exact checks on rank 0.
/// @param mutate  tests only
program::TwinRun run_twin(const program::Plan& plan, const TwinRunOptions& options,
                          Communicator& world, kernels::Backend& backend,
                          const Mutation& mutate = {});

}  // namespace meshplan::runtime
