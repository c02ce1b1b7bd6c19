// A page reads plans of meshplan alone: what would read those of other stacks is left out.
#include "options/foreign.hpp"

namespace meshplan::cli {

void add_foreign_options(Command&, ForeignOptions&) {}

bool is_foreign(const std::string&, const ForeignOptions&) {
  return false;
}

PlanInput read_plan(const std::string& file_or_json, const ForeignOptions&, const ForeignContext&) {
  return {.text = read_input(file_or_json, "plan").text};
}

std::vector<program::Violation> stack_refusals(const PlanInput&, const program::Plan&) {
  return {};
}

std::vector<std::string> notes_of(const PlanInput&) {
  return {};
}

}  // namespace meshplan::cli
