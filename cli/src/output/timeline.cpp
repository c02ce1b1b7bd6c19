#include "output/timeline.hpp"

#include <cstdio>
#include <string>

#include "reports/timeline/step_timeline_text.hpp"

namespace meshplan::cli {

void print_timeline(const program::Trace& trace, const Terminal& terminal) {
  const std::string text =
      "\n" + reports::step_timeline_text(trace, {.colors = terminal.colors_stdout});
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace meshplan::cli
