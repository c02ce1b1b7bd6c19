#include "runtime/comm/job_layout.hpp"

#include "core/index.hpp"

namespace meshplan::runtime {

std::vector<int> JobLayout::ranks_on(int machine) const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r)
    if (machine_of_rank[at(r)] == machine) ranks.push_back(r);
  return ranks;
}

bool JobLayout::oversubscribed() const {
  return static_cast<int>(ranks_on(machine()).size()) > cores_of_machine[at(machine())];
}

}  // namespace meshplan::runtime
