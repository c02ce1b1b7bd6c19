// DeepSpeed's ds_config.json (deepspeedai/DeepSpeed at edaa7221, deepspeed/runtime/config.py).
#pragma once

#include "formats/text/refusals.hpp"
#include "formats/text/script_arguments.hpp"
#include "formats/text/settings.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::planner {

std::vector<ExportedFile> write_deepspeed(const ExportRequest& request);
ImportedPlan read_deepspeed(const ImportRequest& request);
bool recognizes_deepspeed(std::string_view name, std::string_view text);

/// For those that put a ds_config.json among other files.
void refuse_for_deepspeed(Refusals& refusals, const program::Plan& plan);
std::string deepspeed_configuration(const program::Plan& plan);

/// A ds_config.json, which may have comments: DeepSpeed reads it as Hjson.
/// @throws ConfigError as parse_json
Json deepspeed_json(std::string_view text, const std::string& file);

/// GPUs that are known from elsewhere, and where from; absent: the batch sizes must tell.
struct KnownRanks {
  std::optional<int> number;
  std::string source;
};

/// What a ds_config.json says, into a plan whose model is set.
void apply_deepspeed(Settings& in, const KnownRanks& ranks, const ScriptArguments& arguments,
                     ImportedPlan& imported);

/// How "auto" is written in it.
inline constexpr const char* kDeepSpeedAuto = "auto";

}  // namespace meshplan::planner
