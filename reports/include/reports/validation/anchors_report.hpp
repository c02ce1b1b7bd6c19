// What one or two measured runs say of the others of their kind.
#pragma once

#include <string>
#include <vector>

#include "sim/fit/anchored_rows.hpp"

namespace meshplan::reports {

struct AnchorsReport {
  int num_anchors = 1;
  std::vector<sim::AnchoredSuite> suites;
};

std::string to_text(const AnchorsReport& report);
std::string to_json(const AnchorsReport& report);
/// One line a suite.
std::string to_csv(const AnchorsReport& report);

}  // namespace meshplan::reports
