// Words for numbers: why a plan is faster than another, and where its time goes.
#pragma once

#include <string>
#include <vector>

#include "planner/search.hpp"

namespace meshplan::planner {

/// Where `slower` loses against `faster`, largest part first: "bubble +310 ms, exposed tp +120 ms,
/// exposed dp -14 ms". Parts below 3 % of the largest are left out; empty if nothing differs.
std::string time_differences(const sim::Estimate& faster, const sim::Estimate& slower);

/// What the plan's own numbers say: bubble, hidden and exposed communication, recompute, memory.
std::vector<std::string> own_reasons(const RankedPlan& ranked);

/// Three or four digits: "1.23 s", "812 ms", "45.1 us".
std::string format_seconds(double seconds);
/// "61.2 GiB", "412 MiB".
std::string format_bytes(double bytes);

}  // namespace meshplan::planner
