// What narrows a search without being a setting of one plan.
#pragma once

#include <string>
#include <vector>

#include "options/command_line.hpp"
#include "planner/search/search.hpp"

namespace meshplan::cli {

struct SearchOptions {
  std::string space = "default";                    // a preset or a file
  std::vector<std::string> fix, at_least, at_most;  // "tp=8"
};

/// --space --fix --min --max
void add_search_options(Command& command, SearchOptions& options);

/// Puts them into the request. @throws ConfigError for an unknown name (with the nearest), a value
/// that is no number, and two that contradict each other, which it names
void apply(const SearchOptions& options, planner::SearchRequest& request);

}  // namespace meshplan::cli
