// Which instances of a program are done when another one begins.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "core/index.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// What each instance knows to be done when it starts: the last instance of each lane.
class Order {
 public:
  explicit Order(const Program& program) : program_(program) {
    std::array<int, kNumLanes> last{};
    last.fill(kNone);
    for (std::size_t i = 0; i < program.instances.size(); ++i) {
      Known known{};
      known.fill(kNone);
      const auto learn = [&](int instance) {
        for (std::size_t lane = 0; lane < kNumLanes; ++lane)
          known[lane] = std::max(known[lane], known_[at(instance)][lane]);
        known[lane_of(instance)] = std::max(known[lane_of(instance)], instance);
      };
      const std::size_t own = lane_of(static_cast<int>(i));
      if (last[own] != kNone) learn(last[own]);
      for (const int wait : waits_of(program, program.instances[i])) learn(wait);
      known_.push_back(known);
      last[own] = static_cast<int>(i);
    }
  }
  bool is_before(int earlier, int later) const {
    return earlier == later || known_[at(later)][lane_of(earlier)] >= earlier;
  }

 private:
  static constexpr int kNone = -1;
  using Known = std::array<int, kNumLanes>;

  std::size_t lane_of(int instance) const {
    return static_cast<std::size_t>(operation_of(program_, program_.instances[at(instance)]).lane);
  }

  const Program& program_;
  std::vector<Known> known_;
};

}  // namespace meshplan::program
