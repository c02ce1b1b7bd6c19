// Random plans that obey every rule, for what must hold of any plan.
#pragma once

#include <string>
#include <vector>

#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"
#include "support/random.hpp"

namespace meshplan::sim {

struct RandomPlan {
  program::Plan plan;
  Cluster cluster;
  /// What it uses, a name each: "interleaved", "zero 2", "uneven", "mixed nodes", ...
  std::vector<std::string> techniques;
};

/// A preset's model with fewer layers, on up to 128 GPUs of a preset or of two: any schedule,
/// division of layers, context and expert parallelism, ZeRO, recompute, offload, packed documents.
/// At most 64 micro-batches and some 1e5 operations, so that it can be played in a fraction of a
/// second.
RandomPlan random_plan(testing::Random& random);

}  // namespace meshplan::sim
