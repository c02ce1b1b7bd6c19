// Sentences and cells that the text and the page of a scaling curve share.
#pragma once

#include <string>
#include <vector>

#include "reports/scaling/scaling_report.hpp"

namespace meshplan::reports {

struct CardLine {
  std::string name;  // "the knee"
  std::string text;
};

/// "strong scaling over dp: the global batch stays at 512 sequences of 8,192 tokens"
std::string what_is_scaled(const ScalingReport& report);

/// Model, cluster, step and plan of the first size.
std::vector<CardLine> header_lines(const ScalingReport& report);

/// Band, knee, next bottleneck, serial part, ..., sizes worth testing.
std::vector<CardLine> card_lines(const ScalingReport& report);

/// "dp = 64, 512 devices: ..." of points that are no plan, or do not fit.
std::vector<std::string> point_notes(const ScalingReport& report);

/// "8.21..11.1 s": in the unit of format_seconds of the larger.
std::string seconds_between(const sim::Interval& interval);

/// Lines of at most 100 columns: the name, then the text beside it.
std::string to_text(const std::vector<CardLine>& lines);

}  // namespace meshplan::reports
