// A plan's group in a job of more ranks than it needs.
#pragma once

#include <memory>
#include <numeric>
#include <vector>

#include "runtime/comm/communicator.hpp"

namespace meshplan::test {

/// A group of the first ranks of the job; nullptr on the others. All ranks call it.
inline std::unique_ptr<runtime::Communicator> first_ranks(runtime::Communicator& world, int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.create_group(ranks, "plan");
}

}  // namespace meshplan::test
