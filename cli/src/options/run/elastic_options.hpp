// How a run goes on after it has lost ranks (docs/elastic).
#pragma once

#include <optional>
#include <string>

#include "options/command_line.hpp"

namespace meshplan::cli {

struct ElasticOptions {
  std::optional<std::string> range;   // "4:8", "4" or ""; absent: a loss ends the run
  std::optional<std::string> spares;  // hosts
  int failures_per_hour = 20;
  int node_failures = 3;
  double retry_after_s = 60;
  bool replace_slow_ranks = false;
};

/// --elastic --spares --failures-per-hour --node-failures --retry-after --replace-slow-ranks
void add_elastic_options(Command& command, ElasticOptions& options);

/// Ranks with which a run goes on.
struct RankRange {
  int least = 1;
  int most = 1;
};

/// @param text  "4:8", "4:" or "4" (at least 4), ":8" (at most 8) or ""
/// @param ranks  of the plan: the most, if `text` does not say
/// @throws ConfigError for anything else, and where the plan's ranks are outside
RankRange parse_rank_range(const std::string& text, int ranks);

}  // namespace meshplan::cli
