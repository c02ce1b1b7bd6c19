#pragma once

#include <string>

namespace meshplan::program {

/// Degrees of the parallel axes. `ep` and `etp` reuse the tp*cp*dp ranks of a stage, so they are
/// not factors of world_size(). `sp` shards the tokens between tensor-parallel regions over the tp
/// group.
struct ParallelConfig {
  int tp = 1;
  int cp = 1;
  int pp = 1;
  int vpp = 1;  // virtual stages (chunks) per rank
  int dp = 1;
  int ep = 1;
  int etp = 1;
  bool sp = false;

  constexpr int world_size() const { return tp * cp * pp * dp; }
  /// Data-parallel size of the expert parameters: the ranks of a stage that hold the same experts.
  constexpr int edp() const { return tp * cp * dp / (etp * ep); }
  bool operator==(const ParallelConfig&) const = default;
};

/// "tp2 sp pp4 dp2": degrees of 1 are left out; "one rank" if nothing is left.
std::string to_string(const ParallelConfig& config);

}  // namespace meshplan::program
