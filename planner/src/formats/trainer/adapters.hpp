// Adapters of PEFT as configurations name them, and what they are in a plan.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/text/settings.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::planner::trainer {

/// Small trained matrices beside frozen weights (PEFT). `kind` is empty where the model itself is
/// trained.
struct Adapters {
  std::string kind;                  // as the file has it: "lora", "qlora", "oft"
  std::string key;                   // that says so, for messages
  std::optional<int> rank;           // lora_rank, lora_r
  std::optional<double> alpha;       // lora_alpha
  double dropout = 0;                // lora_dropout
  std::vector<std::string> modules;  // linears that have one; "all" for all
  int base_bits = 16;                // of the frozen weights: 4 and 8 where they are quantized
  std::vector<std::string> whole;    // modules beside them that are trained whole: "lm_head"
};

/// "q_proj, v_proj" as its words.
std::vector<std::string> words_between_commas(const std::string& text);

/// Takes adapters' rank, alpha, dropout and modules. @param names  of these keys, in this order
void read_adapters(Settings& in, const std::array<std::string_view, 4>& names, Adapters& adapters);

/// LoRA of a plan: the model's adapters, all else frozen and kept as the file says.
/// @param imported  its plan's model and ZeRO stage are set
/// @throws ConfigError for other adapters, and for modules that the model does not have
void apply_adapters(const Settings& in, const Adapters& adapters, ImportedPlan& imported);

}  // namespace meshplan::planner::trainer
