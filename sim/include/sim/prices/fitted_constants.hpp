// The few numbers that no data sheet gives and that were fitted on measured runs: one file
// (sim/constants/fitted.json) holds each with unit, meaning, allowed range and what determines it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::sim {

/// Values by name. What each means stands in the file.
struct Constants {
  double gemm_ampere = 0.85;
  double gemm_hopper = 0.72;
  double gemm_blackwell = 0.72;
  double gemm_blackwell_fp8 = 0.6;
  double flash_ampere = 0.6;
  double flash_hopper = 0.6;
  double memory = 0.85;
  double kernel_us = 4;
  double host_issue_us = 8;
  double tp_exposed = 0.2;    // of overlapped tp communication
  double dp_exposed = 0.1;    // of overlapped dp communication
  double fsdp_exposed = 0.3;  // the same where gathers run one layer ahead at most
  double jitter = 0.004;
  double step_overhead_ms = 20;
  double all_to_all = 0.7;
};

/// The file's record of one constant.
struct ConstantRecord {
  std::string name;
  double value = 0;
  std::string unit;
  std::string meaning;
  double expected = 0;  // before any fit: fits start here and are weakly pulled to it
  double neutral = 0;   // what leaves its effect out
  double low = 0;
  double high = 0;
  std::string source;
  std::vector<std::string> determined_by;  // at least four groups of measured runs
  double relative_sigma = 0;               // of the fit
};

struct NamedConstant {
  std::string_view name;
  double Constants::*member;
};

/// Every constant, in the file's order.
const std::vector<NamedConstant>& constant_members();

/// @throws ConfigError for an unknown, missing or repeated name, or a value outside its range
std::vector<ConstantRecord> parse_constants(std::string_view text, const std::string& file);
Constants constants_of(const std::vector<ConstantRecord>& records);
/// Standard deviation of each, from its fit.
Constants sigmas_of(const std::vector<ConstantRecord>& records);
std::string to_json(const std::vector<ConstantRecord>& records);
/// The file that is compiled in.
const std::vector<ConstantRecord>& fitted_constants();

}  // namespace meshplan::sim
