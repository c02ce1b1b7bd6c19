#include "options/stack_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "program/plan_file/stack_settings.hpp"
#include "sim/stacks/execution_profile.hpp"

namespace meshplan::cli {

void add_stack_options(Command& command, StackOptions& options) {
  command
      .option("--software", options.software,
              fmt::format("training stack that runs the plan, with a release or without, as in "
                          "megatron-core@25.09: {}; default: the file's",
                          fmt::join(sim::execution_profile_names(), ", ")))
      .suggests(sim::execution_profile_names())
      .beside_plan()
      .option("--stack", options.settings,
              fmt::format("NAME=VALUE: how that stack is asked to run it, for example "
                          "overlap_ep=true; may be repeated: {}",
                          fmt::join(program::stack_setting_names(), ", ")))
      .beside_plan();
}

void take_stack(const StackOptions& options, program::Stack& stack) {
  stack.software = sim::with_stack_name(stack.software);
  if (options.software) {
    const std::string software = sim::with_stack_name(*options.software);
    const bool same =
        sim::parse_software(software).name == sim::parse_software(stack.software).name;
    if (!same) stack.settings = {};
    stack.software = software;
  }
  for (const std::string& setting : options.settings) program::set_stack(stack, setting, "--stack");
  sim::load_execution_profile(stack.software);  // there is such software
}

}  // namespace meshplan::cli
