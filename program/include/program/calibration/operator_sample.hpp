#pragma once

#include <string>
#include <vector>

namespace meshplan::program {

/// A measured operator on one device. `seconds_busy` was measured while every other core (or rank)
/// of the host ran the same operator: it shows what sharing memory bandwidth and clocks costs.
struct OperatorSample {
  std::string signature;  // program::signature
  double seconds = 0;     // first quartile of undisturbed timings, alone
  double seconds_busy = 0;
  double spread = 0;  // (p90 - p10) / median
  double flops = 0;
  double bytes = 0;
};

}  // namespace meshplan::program
