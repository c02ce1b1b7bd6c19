// Sums over the work of a layer that several tests take.
#pragma once

#include <vector>

#include "stacks/layer/layer_work.hpp"

namespace meshplan::sim {

inline double stream_bytes(const std::vector<WorkItem>& items) {
  double bytes = 0;
  for (const WorkItem& item : items)
    if (item.kind == WorkKind::Stream) bytes += item.bytes;
  return bytes;
}

}  // namespace meshplan::sim
