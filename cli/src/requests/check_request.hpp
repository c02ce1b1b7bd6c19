// What `meshplan check` and the Python package ask about a plan before it runs, and the report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options/command_line.hpp"
#include "options/foreign.hpp"
#include "options/stack_options.hpp"
#include "output/terminal.hpp"
#include "reports/check_report.hpp"
#include "requests/question.hpp"

namespace meshplan::cli {

constexpr const char* kCheckSummary =
    "Say whether a training stack starts a plan, whether it fits, what helps";

struct CheckRequest {
  std::optional<std::string> file;  // or its JSON
  std::optional<std::string> target;
  std::optional<std::string> cluster;
  StackOptions stack;
  std::vector<std::string> set;
  ForeignOptions foreign;
  ForeignContext context;
  std::optional<double> memory_reserve;
};
/// The options that say what to check: a plan's file, --for --cluster --software --set ...
void add_check_request(Command& command, CheckRequest& request);

/// @throws ConfigError for what is no plan; a plan that breaks rules has an answer
reports::CheckReport answer(const CheckRequest& request, const Terminal& terminal);

/// Answers reports::to_json of the report.
Question check_question();

}  // namespace meshplan::cli
