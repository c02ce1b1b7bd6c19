// Which techniques of parallel training a plan combines, and which plans have all pairs of them.
#pragma once

#include <bitset>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::program {

struct Technique {
  std::string name;  // "tp", "zb-h1", "cp-ring", "zero3", ...
  bool (*used)(const Plan&) = nullptr;
};

/// All that are told apart, in the order of tables.
const std::vector<Technique>& techniques();

/// Techniques that a plan has, by index into `all`, ascending.
std::vector<std::size_t> techniques_of(const Plan& plan, std::span<const Technique> all);

/// Pairs of techniques, and techniques alone: bit pair_index(a, b), a <= b; (a, a) is a alone.
constexpr std::size_t kMostTechniques = 64;
using PairSet = std::bitset<kMostTechniques * kMostTechniques>;
constexpr std::size_t pair_index(std::size_t a, std::size_t b) {
  return a * kMostTechniques + b;
}
PairSet pairs_of(const Plan& plan, std::span<const Technique> all);

/// Indexes, ascending, of sets that together have all pairs that any of them has: at each turn the
/// first of those with most pairs that none before it has.
/// @param covered  pairs that need no set
std::vector<std::size_t> covering_sets(std::span<const PairSet> sets, PairSet covered = {});

}  // namespace meshplan::program
