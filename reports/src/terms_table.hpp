// The terms of a predicted step as a table.
#pragma once

#include <string>
#include <vector>

#include "reports/table.hpp"
#include "sim/engine/prediction_terms.hpp"
#include "sim/stacks/run_prediction.hpp"

namespace meshplan::reports {

/// The interval of a simulated step and its terms. @param stage  that they are of
std::string terms_text(const std::vector<sim::PredictionTerm>& terms, double step_time_s,
                       int stage);

/// On which of the two terms with timed shapes their prices rest.
std::string timed_text(const sim::TimedShares& timed);

Table terms_table(const std::vector<sim::PredictionTerm>& terms, double step_time_s);

}  // namespace meshplan::reports
