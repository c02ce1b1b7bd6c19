// What measured runs say of the errors of predictions.
#pragma once

#include <string>

#include "sim/anchors/adjustment.hpp"

namespace meshplan::reports {

/// "one run, of train.log: median of 80 steps after 20 of warm-up"
std::string anchors_in_words(const sim::Adjustment& adjustment);

/// Anchors, measured and predicted, before and after; and the factors, as priors and as the anchors
/// have them.
std::string to_text(const sim::Adjustment& adjustment);

}  // namespace meshplan::reports
