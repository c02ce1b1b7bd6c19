// Formulas of single operators beside measured ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/fit/operator_validation.hpp"

namespace meshplan::reports {

std::string to_text(const sim::OperatorReport& report);
std::string to_json(const sim::OperatorReport& report);

/// A sentence for every file and device whose median error of the formulas, of interpolation or
/// with the device left out exceeds that of `committed`, an earlier report as JSON, by more than
/// half a percentage point; empty if none does.
/// @throws ConfigError if `committed` is no such report
std::vector<std::string> worse_operators(const sim::OperatorReport& report,
                                         std::string_view committed, const std::string& file);

}  // namespace meshplan::reports
