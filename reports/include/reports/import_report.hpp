// What `meshplan import` shows: a configuration of another stack as a plan.
#pragma once

#include <string>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::reports {

struct ImportReport {
  program::Plan plan;
  std::string file;
  std::string format;
  std::vector<std::string> assumptions;
  std::vector<std::string> ignored;
};

std::string to_text(const ImportReport& report);
std::string to_json(const ImportReport& report);

}  // namespace meshplan::reports
