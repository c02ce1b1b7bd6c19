// What a step's communication puts on each level of the fabric: messages, bytes, and the time that
// no computation hides.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/clusters/cluster.hpp"
#include "sim/engine/breakdown.hpp"
#include "sim/engine/simulated_step.hpp"

namespace meshplan::sim {

/// Communication of one kind of group over one level, the mean over all ranks.
struct LinkTraffic {
  Category category = Category::Other;  // Tp, Sp, Cp, Ep, Pp or Dp
  std::string group;                    // "tp", "dp-cp": as spans name it
  std::optional<int> level;  // of Cluster::fabric, the outermost that the group needs; absent: none
  std::string operation;     // "all_reduce", "send"; empty: all of them
  double messages = 0;       // of a rank in a step: collectives, and sends of the pipeline
  double bytes = 0;          // that a rank passes in
  double sent_bytes = 0;     // that it sends, where none are sent twice: as rings do
  double alone_s = 0;        // that they take, each alone
  /// What the breakdown says is exposed of the category, divided among its rows by `alone_s`.
  double exposed_s = 0;
};

/// By category, then group, level and operation. The first rank of a stage stands for its others.
/// @param played  with its breakdown
std::vector<LinkTraffic> link_traffic(const PlayedPlan& played, const Cluster& cluster);

/// The same without telling operations apart.
std::vector<LinkTraffic> of_all_operations(const std::vector<LinkTraffic>& traffic);

}  // namespace meshplan::sim
