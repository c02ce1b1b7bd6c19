// What both forms of torchtitan's configuration come to, before it is a plan.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/text/settings.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::planner::torchtitan {

enum class Checkpointing { None, Selective, Full, EveryNth };

struct Reading {
  std::string family;  // "llama3", "" where nothing says it
  std::string flavor;
  std::optional<int> num_layers;           // of the flavor's first ones
  std::optional<models::ModelSpec> model;  // as the files describe it

  int replicate = 1;
  int shard = -1;  // the ranks that are left
  std::string reshard = "default";
  int tp = 1;
  bool sequence_parallel = true;
  int cp = 1;
  program::ContextMethod context = program::ContextMethod::AllGather;
  int pp = 1;
  std::string schedule = "1F1B";
  std::optional<std::string> schedule_csv;  // its text
  std::optional<int> layers_per_stage;
  int first_less = 1;
  int last_less = 1;
  std::vector<std::vector<std::string>> modules;
  int ep = 1;
  std::optional<int> etp;  // absent: experts are cut by tp where ep is 1

  std::int64_t seq_len = 2048;
  std::int64_t micro_batch = 8;                // sequences
  std::int64_t pipeline_microbatches = 1;      // of one pass of the pipeline
  std::optional<std::int64_t> step_sequences;  // absent: one pass or micro-batch

  Checkpointing checkpointing = Checkpointing::Selective;
  int every = 1;  // EveryNth
  program::Precision precision = program::Precision::BF16;
  bool offload = false;
  program::CompiledPart compiled = program::CompiledPart::None;
  std::optional<bool> cuda_graphs;
  std::optional<bool> flex_attention;
  program::OptimizerConfig optimizer;

  std::vector<std::string> assumptions;
};

/// The TOML form, of before February 2026.
Reading read_toml(Settings& in, const ImportRequest& request, ImportedPlan& imported);

/// The Python form. @param function  of the file; empty: its only configuration
Reading read_python(const std::string& text, const std::string& file, const std::string& function,
                    const ImportRequest& request, ImportedPlan& imported);

/// A file of the request that pipeline_parallel_schedule_csv names. @throws ConfigError if it is
/// not there
std::optional<std::string> schedule_file(const ImportRequest& request, const std::string& file,
                                         std::string_view named);

/// With compile.components of the loss alone the model runs as it is. @param enabled compile.enable
program::CompiledPart compiled_part(Settings& in, bool enabled);

/// Learning rates and the like under "lr_scheduler."
void read_learning_rate(Settings& in, program::OptimizerConfig& optimizer);

inline constexpr std::array<std::string_view, 3> kReshardPolicies = {"default", "always", "never"};
inline constexpr std::array<std::string_view, 2> kParameterTypes = {"bfloat16", "float32"};

}  // namespace meshplan::planner::torchtitan
