// Plans out of files: our own, and configurations of other stacks wherever a plan's file may stand.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "options/command_line.hpp"
#include "options/inputs.hpp"
#include "planner/formats/formats.hpp"
#include "program/checks/check.hpp"

namespace meshplan::cli {

/// What a foreign configuration leaves open, or how it is to be read.
struct ForeignOptions {
  std::optional<std::string> from;  // absent: by the file's name and content
  std::vector<std::string> environment;
  std::optional<std::string> arguments;  // of a launch script
};
/// --from --env --args, in the group that is open
void add_foreign_options(Command& command, ForeignOptions& options);

/// The rest of what says how to read one: --model --gpus, which commands have for other reasons.
struct ForeignContext {
  std::optional<std::string> model;
  ModelReading reading = {};
  std::optional<int> ranks = {};
};

/// --model --gpus and how a model is read
void add_foreign_context(Command& command, ForeignContext& context);

struct PlanInput {
  std::string text;      // of the plan's file
  std::string format;    // empty: a plan's file
  planner::Facts facts;  // that the rules of its stack ask about
  std::vector<std::string> assumptions;
  std::vector<std::string> ignored;
};

/// Is it a configuration of another stack? @throws ConfigError if the file cannot be read
bool is_foreign(const std::string& file_or_json, const ForeignOptions& options);

/// A plan's file or its JSON as it is; any other file as its format reads it, with the small files
/// beside it that it may name. @throws ConfigError for an unknown format, and as the format does
PlanInput read_plan(const std::string& file_or_json, const ForeignOptions& options,
                    const ForeignContext& context);

/// What a plan's stack is told besides the plan, as its rules name it: by the file that was read,
/// or of a plan by what export would write. Nothing of our own stack.
planner::Facts facts_told(const PlanInput& input, const program::Plan& plan);

/// By which of its own rules the plan's stack would not start.
std::vector<program::Violation> stack_refusals(const PlanInput& input, const program::Plan& plan);

/// "assumed  ..." and "ignored  ...", a line each, for standard error.
std::vector<std::string> notes_of(const PlanInput& input);

}  // namespace meshplan::cli
