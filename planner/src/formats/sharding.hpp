// How PyTorch's FSDP says what ZeRO divides.
#pragma once

#include "program/plan/plan.hpp"

namespace meshplan::planner {

/// Ranks that hold a copy of everything, and along dp those that share one.
struct Sharding {
  int replicate = 1;
  int shard = 1;
};

Sharding sharding_of(const program::Plan& plan);

}  // namespace meshplan::planner
