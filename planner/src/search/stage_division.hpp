// How layers are divided among stages whose devices differ in speed.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "planner/search/search.hpp"

namespace meshplan::planner {

/// Divides layers in proportion to how fast the slowest devices of a stage multiply.
class StageDivision {
 public:
  /// @param request  must outlive it
  explicit StageDivision(const SearchRequest& request) : request_(request) {}

  /// Layers of each virtual stage, at least one; empty where the even division stands: ranks of one
  /// type, one stage, pinned layers, fewer layers than virtual stages.
  std::vector<int> layers(const Candidate& candidate);

 private:
  const std::vector<double>& speeds(const program::ParallelConfig& parallel);

  const SearchRequest& request_;
  std::map<std::array<int, 6>, std::vector<double>> speeds_;  // of stages, by degrees of a mesh
};

}  // namespace meshplan::planner
