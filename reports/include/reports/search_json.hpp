// What `meshplan plan --json` prints, and the JSON Schemas (draft 2020-12) of it and of plan files.
#pragma once

#include <string>

#include "planner/search/search.hpp"

namespace meshplan::reports {

/// For programs; the ranked plans are whole plan files.
std::string to_json(const planner::SearchOutcome& outcome);

/// Of what to_json(SearchOutcome) writes; its $defs/plan is the schema of plan files.
std::string search_schema();

/// Of plan files, with the schemas of the model and the cluster that they hold.
std::string plan_file_schema();

}  // namespace meshplan::reports
