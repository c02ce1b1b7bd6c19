// Published training recipes as plans of ours.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/search/search.hpp"

namespace meshplan::bench {

/// What is trained, on what: recipes of equal work are compared with one search.
struct Work {
  std::string model;    // preset
  std::string cluster;  // preset
  int gpus = 0;
  std::int64_t global_batch_size = 0;
  std::int64_t seq_len = 0;
  program::Precision precision = program::Precision::BF16;
  // That runs it: our own, or Megatron-Core where we have no program of the model or the precision.
  std::string software = std::string(program::kOwnSoftware);
  std::optional<program::Fp8Scaling> scaling;  // of Megatron-Core's low precision
  auto operator<=>(const Work&) const = default;
};

struct Recipe {
  std::string name;
  Work work;
  planner::Candidate candidate;
  std::vector<std::string> assumed;  // what the table does not state or our plans do not know
  std::string left_out;              // why it cannot be compared; empty = it can
};

/// A table as of Megatron-Bridge's recipes: a row is the settings that a recipe's function makes.
/// @throws ConfigError if a column is missing; what cannot be compared says why
std::vector<Recipe> read_recipes(std::string_view csv, const std::string& file);

/// The same with experts' exchanges beside other micro-batches, as Megatron-Core's
/// --overlap-moe-expert-parallel-comm does; nothing where that is not allowed.
std::optional<planner::Candidate> in_pairs(planner::Candidate candidate);

planner::SearchRequest request_of(const Work& work);

}  // namespace meshplan::bench
