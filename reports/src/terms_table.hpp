// The terms of a predicted step as a table.
#pragma once

#include <vector>

#include "reports/table.hpp"
#include "sim/prediction_terms.hpp"

namespace meshplan::reports {

Table terms_table(const std::vector<sim::PredictionTerm>& terms, double step_time_s);

}  // namespace meshplan::reports
