// How a plan's ranks lie on nodes.
#pragma once

#include <algorithm>

#include "planner/formats/formats.hpp"

namespace meshplan::planner {

struct Nodes {
  int count = 1;
  int ranks_each = 1;
};

/// As many ranks a node as it has devices; fewer where that does not divide the ranks.
inline Nodes nodes_of(const ExportRequest& request) {
  const int ranks = request.plan.parallel.world_size();
  int each = std::clamp(request.devices_per_node, 1, ranks);
  while (ranks % each != 0) --each;
  return {ranks / each, each};
}

}  // namespace meshplan::planner
