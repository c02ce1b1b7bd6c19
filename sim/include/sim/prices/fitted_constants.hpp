// The few numbers that neither a data sheet nor a measured operator gives and that were fitted on
// measured runs: sim/constants/fitted.json holds each with unit, meaning, allowed range and what
// determines it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/prices/constant_records.hpp"

namespace meshplan::sim {

/// Values by name. What each means stands in the file.
struct Constants {
  // Time of products and attention in a step over their time alone (operator_constants.hpp).
  double step_ampere = 1.05;
  double step_hopper = 1.15;
  double step_blackwell = 1.25;
  double step_blackwell_half = 1.4;  // of products in 16 bit
  double memory = 0.85;
  double host_issue_us = 8;
  double tp_exposed = 0.2;  // of overlapped tp communication
  double dp_exposed = 0.1;  // of overlapped dp communication
  double jitter = 0.004;
  double step_overhead_ms = 20;
  double all_to_all = 0.7;
};

/// Every constant, in the file's order.
const std::vector<NamedMember<Constants>>& constant_members();

/// @throws ConfigError for an unknown, missing or repeated name, or a value outside its range
std::vector<ConstantRecord> parse_constants(std::string_view text, const std::string& file);
Constants constants_of(const std::vector<ConstantRecord>& records);
/// Standard deviation of each, from its fit.
Constants sigmas_of(std::vector<ConstantRecord> records);
/// The file that is compiled in.
const std::vector<ConstantRecord>& fitted_constants();

}  // namespace meshplan::sim
