#include "ranks/plan_to_run.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "output/output.hpp"
#include "process/files.hpp"
#include "program/checks/check.hpp"
#include "program/plan_file/plan_file.hpp"

namespace meshplan::cli {

program::Plan plan_to_run(const std::string& file) {
  program::Plan plan = program::read_plan(read_file(file), file);
  if (!plan.stack.is_own()) {
    output(stderr, "note     {}: is of {}; meshplan's own runtime runs it here\n",
           printable_line(file), plan.stack.software);
    plan.stack = {};
    plan.prediction.reset();
  }
  for (const program::Violation& violation : program::check(plan))
    throw ConfigError(fmt::format("{}: {}", file, violation.message));
  return plan;
}

}  // namespace meshplan::cli
