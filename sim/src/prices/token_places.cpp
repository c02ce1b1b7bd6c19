#include "prices/token_places.hpp"

#include <algorithm>

namespace meshplan::sim {
namespace {

/// Probability that none of `k` different ones of `all` is among `some` of them: hypergeometric.
double none_among(double some, double all, int k) {
  double probability = 1;
  for (int i = 0; i < k; ++i) probability *= std::max(0.0, all - some - i) / std::max(1.0, all - i);
  return probability;
}

/// Probability that `chosen` of `top` random groups of `groups` are among `own` of them.
double groups_among(int own, int groups, int top, int chosen) {
  double ways = 1;
  for (int i = 0; i < chosen; ++i)  // C(top, chosen)
    ways *= static_cast<double>(top - i) / (i + 1);
  double probability = ways;
  for (int i = 0; i < chosen; ++i) probability *= std::max(0, own - i);
  for (int i = 0; i < top - chosen; ++i) probability *= std::max(0, groups - own - i);
  for (int i = 0; i < top; ++i) probability /= groups - i;
  return probability;
}

}  // namespace

double expected_places(double places, const ExpertChoice& choice) {
  const double held = choice.experts / places;  // by one place
  const int top = std::min(choice.top_groups, choice.groups);
  if (choice.groups <= 1 || top == choice.groups)
    return places * (1 - none_among(held, choice.experts, choice.top_k));
  const double in_group = choice.experts / choice.groups;
  const double eligible = in_group * top;
  if (places > choice.groups) {
    const double of_chosen = static_cast<double>(top) / choice.groups;
    return places * of_chosen * (1 - none_among(held, eligible, choice.top_k));
  }
  const int own = static_cast<int>(choice.groups / places);
  double missed = 0;
  for (int chosen = 0; chosen <= std::min(own, top); ++chosen)
    missed += groups_among(own, choice.groups, top, chosen) *
              none_among(chosen * in_group, eligible, choice.top_k);
  return places * (1 - missed);
}

}  // namespace meshplan::sim
