#pragma once

#include <string>
#include <vector>

#include "core/index.hpp"

namespace meshplan::runtime {

/// Which rank of the job runs where. Machines are told apart by their running kernel, not by host
/// name: two names of one machine are one machine.
struct JobLayout {
  int rank = 0;
  std::vector<int> machine_of_rank;       // index of a machine, counted by first rank
  std::vector<std::string> host_of_rank;  // as each rank's launcher or kernel names it
  std::vector<int> cores_of_machine;      // cores that the job's ranks there may run on, together

  int size() const { return static_cast<int>(machine_of_rank.size()); }
  int num_machines() const { return static_cast<int>(cores_of_machine.size()); }
  int machine() const { return machine_of_rank[at(rank)]; }
  /// World ranks on a machine, ascending.
  std::vector<int> ranks_on(int machine) const;
  /// More ranks than cores on this rank's machine: who waits must give up its core.
  bool oversubscribed() const;
};

}  // namespace meshplan::runtime
