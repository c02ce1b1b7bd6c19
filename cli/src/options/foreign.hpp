// Plans out of files: our own, and configurations of other stacks wherever a plan's file may stand.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "options/command_line.hpp"
#include "options/inputs.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::cli {

/// What a foreign configuration leaves open, or how it is to be read.
struct ForeignOptions {
  std::optional<std::string> from;  // absent: by the file's name and content
  std::vector<std::string> environment;
};
/// --from --env, in the group that is open
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
  std::string software;  // that runs it: kOwnSoftware, or the foreign one's
  std::string format;    // empty: a plan's file
  sim::RunSettings settings;
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

/// "assumed  ..." and "ignored  ...", a line each, for standard error.
std::vector<std::string> notes_of(const PlanInput& input);

}  // namespace meshplan::cli
