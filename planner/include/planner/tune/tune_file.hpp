// What a folder of `meshplan tune` keeps: what was asked for, and everything that was measured.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "planner/tune/tuning.hpp"

namespace meshplan::planner {

struct TuneFile {
  int schema_version = 1;
  std::map<std::string, std::string> request;  // by name; another request needs another folder
  double seconds_used = 0;                     // by runs of plans
  std::vector<TuneCandidate> candidates;       // in the order in which they were found
};

/// @throws ConfigError naming file, path, value and what was expected
TuneFile parse_tune_file(std::string_view text, const std::string& file);
std::string to_json(const TuneFile& file);

/// @throws ConfigError naming the first entries that differ, with both values
void require_same_request(const TuneFile& kept, const std::map<std::string, std::string>& asked,
                          const std::string& file);

/// Do two plans tell the ranks to do the same, whatever was predicted of them?
bool runs_the_same(const program::Plan& a, const program::Plan& b);

}  // namespace meshplan::planner
