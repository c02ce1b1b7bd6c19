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

/// How many of a test's random cases to try: all, else a quarter, and under sanitizers, where each
/// takes ten times as long, a tenth of that.
inline int random_cases(int all) {
  if (all_cases()) return all;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::max(3, all / 40);
#else
  return std::max(3, all / 4);
#endif
}

}  // namespace meshplan::testing
