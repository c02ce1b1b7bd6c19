// In how many different places the experts of one token lie.
#pragma once

namespace meshplan::sim {

/// A router that chooses `top_k` of `experts` for a token, all sets of them equally likely. With
/// `groups` > 1 only experts of `top_groups` groups are eligible, whose experts are contiguous
/// (DeepSeek-V3, section 2.1.2).
struct ExpertChoice {
  double experts = 1;
  int top_k = 1;
  int groups = 1;
  int top_groups = 1;
};

/// Expected number of places that hold at least one expert of a token, if `places` places divide
/// the experts evenly and in order. A place holds whole groups or divides one.
/// @param places  at least 1
double expected_places(double places, const ExpertChoice& choice);

}  // namespace meshplan::sim
