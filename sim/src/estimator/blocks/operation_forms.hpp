#pragma once

#include <unordered_map>
#include <vector>

#include "program/program.hpp"
#include "schedules/cache_key.hpp"

namespace meshplan::sim {

/// Numbers the operations of blocks by what their prices depend on, but for the plan: those of one
/// number cost the same in all programs of plans with equal PlanKeys::blocks and expert_blocks.
class OperationForms {
 public:
  /// By 2 * block + backward, and by index.
  using Numbers = std::vector<std::vector<int>>;
  Numbers numbers_of(const program::Program& program);

 private:
  int number_of(const program::Block& block, const program::Operation& operation);

  CacheKey key_;
  std::unordered_map<CacheKey, int, CacheKey::Hash> numbers_;
};

}  // namespace meshplan::sim
