// Words for numbers: why a plan is faster than another, and where its time goes.
#pragma once

#include <string>
#include <vector>

#include "planner/search/search.hpp"

namespace meshplan::planner {

/// A part of the difference between two step times.
struct DifferencePart {
  std::string name;    // "bubble", "exposed tp"
  double seconds = 0;  // that the other plan takes longer
};
/// Where `other` takes longer than `first`, or shorter, largest part first. They sum to the
/// difference of the step times: those below 3 % of the largest are one, "rest". Empty if nothing
/// differs.
std::vector<DifferencePart> difference_parts(const sim::StepPrediction& first,
                                             const sim::StepPrediction& other);
/// The same in words: "bubble +310 ms, exposed tp +120 ms, exposed dp -14 ms".
std::string time_differences(const sim::StepPrediction& first, const sim::StepPrediction& other);

/// What the plan's own numbers say: bubble, hidden and exposed communication, recompute, memory.
std::vector<std::string> own_reasons(const RankedPlan& ranked);

/// Three or four digits: "1.23 s", "812 ms", "45.1 us".
std::string format_seconds(double seconds);
/// From milliseconds to years, three digits: "3.1 h", "17.2 min", "45.0 s".
std::string format_duration(double seconds);
/// The same with its sign: "+1.23 s".
std::string signed_seconds(double seconds);
/// "61.2 GiB", "412 MiB".
std::string format_bytes(double bytes);
/// "92.0 GiB > 79.6 GiB", with as many digits as tell them apart.
std::string shortage(double needed_bytes, double available_bytes, bool of_host = false);

}  // namespace meshplan::planner
