// What `meshplan scale` shows: a card, tables, CSV, JSON and a page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/scaling/curve.hpp"
#include "planner/scaling/measured.hpp"

namespace meshplan::reports {

struct ScalingReport {
  std::string generator;  // "meshplan 0.1.0"
  sim::Cluster cluster;   // of the first size
  planner::ScalingCurve curve;
  std::optional<planner::MeasuredCurve> measured;
  std::string measured_source;  // the file, or what ran
};

/// A card of sentences, then tables of at most 100 columns.
std::string to_text(const ScalingReport& report);
/// A header and a row for each size; what a size has not is empty.
std::string to_csv(const ScalingReport& report);
/// What the page shows, and the JSON Schema of that.
std::string to_json(const ScalingReport& report);
std::string scaling_schema();
/// The whole file: it needs neither other files nor a network.
std::string to_html(const ScalingReport& report);

}  // namespace meshplan::reports
