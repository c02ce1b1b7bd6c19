#include "program/memory_plan.hpp"

namespace meshplan::program {

std::int64_t MemoryPlan::total_bytes() const {
  std::int64_t total = 0;
  for (const RegionPlan& region : regions) total += region.on_host ? 0 : region.bytes();
  return total;
}

std::int64_t MemoryPlan::host_bytes() const {
  std::int64_t total = 0;
  for (const RegionPlan& region : regions) total += region.on_host ? region.bytes() : 0;
  return total;
}

}  // namespace meshplan::program
