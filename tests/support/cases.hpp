// How much of their cases tests try.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace meshplan::testing {

/// Whether to try every case: MESHPLAN_CASES=all in the environment, which `ctest -C full -L full`
/// sets. Otherwise as many as a quick answer needs.
inline bool all_cases() {
  const char* wanted = std::getenv("MESHPLAN_CASES");
  return wanted != nullptr && std::string_view(wanted) == "all";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;  // everything takes ten times as long
#else
inline constexpr bool kSanitized = false;
#endif

/// Whether a test with a few large cases leaves some out.
inline bool few_cases() {
  return kSanitized && !all_cases();
}

/// How many of a test's random cases to try: all, else a quarter, and under sanitizers a tenth of
/// that.
inline int random_cases(int all) {
  if (all_cases()) return all;
  return std::max(3, all / (kSanitized ? 40 : 4));
}

}  // namespace meshplan::testing
