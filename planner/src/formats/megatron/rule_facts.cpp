#include "formats/megatron/rule_facts.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <set>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "formats/megatron_flags/flag.hpp"
#include "rules/pipeline_layout.hpp"

namespace meshplan::planner::megatron {
namespace {

constexpr const char* kTarget = "megatron-lm";

/// Settings that are on or off, or 0 where the flag is not given, whatever the plan says.
constexpr std::array kOffUnlessGiven = {"account_for_embedding_in_pipeline_split",
                                        "account_for_loss_in_pipeline_split",
                                        "decoder_first_pipeline_num_layers",
                                        "decoder_last_pipeline_num_layers",
                                        "disable_bias_linear",
                                        "distribute_saved_activations",
                                        "mla_down_proj_fusion",
                                        "moe_grouped_gemm",
                                        "moe_shared_expert_overlap",
                                        "no_gradient_accumulation_fusion",
                                        "no_overlap_p2p_communication",
                                        "num_layers_per_virtual_pipeline_stage",
                                        "num_virtual_stages_per_pipeline_rank",
                                        "overlap_grad_reduce",
                                        "overlap_moe_expert_parallel_comm",
                                        "overlap_param_gather",
                                        "recompute_method",
                                        "recompute_num_layers",
                                        "use_distributed_optimizer",
                                        "use_megatron_fsdp",
                                        "use_torch_fsdp2"};

/// Of layers that a plan has not: linear attention, and residual streams side by side.
constexpr std::array kOtherModules = {"gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc"};

std::set<std::string, std::less<>> setting_names() {
  std::set<std::string, std::less<>> names;
  for (const Setting& setting : rules_for(kTarget).settings) names.insert(setting.name);
  return names;
}

/// A flag without a value, or with a word, is on.
void add_setting(Facts& facts, const std::string& name, const Argument& argument) {
  facts[name] = 1;
  if (argument.values.size() != 1 || !argument.values.front().known()) return;
  if (const auto number = parse_integer(argument.values.front().text, INT32_MIN, INT32_MAX))
    facts[name] = *number;
}

void add_lists(Facts& facts, const Argument& argument, int pp) {
  const auto lists = [&](std::string_view word) {
    return std::ranges::any_of(argument.values,
                               [&](const shell::Value& value) { return value.text == word; });
  };
  const std::string first = argument.values.empty() ? "" : argument.values.front().text;
  if (argument.flag == "--recompute-modules") {
    for (const char* module : {"moe_act", "layernorm", "mla_up_proj", "shared_experts", "moe"})
      facts[fmt::format("recompute_{}", module)] = lists(module) ? 1 : 0;
    facts["recompute_unknown_modules"] =
        std::ranges::count_if(argument.values, [](const shell::Value& value) {
          return !module_of(value.text) &&
                 std::ranges::find(kOtherModules, value.text) == kOtherModules.end();
        });
  } else if (argument.flag == "--cp-comm-type") {
    facts["cp_comm_types"] = static_cast<std::int64_t>(argument.values.size());
    facts["cp_hierarchical"] = lists("a2a+p2p") ? 1 : 0;
  } else if (argument.flag == "--moe-token-dispatcher-type") {
    facts["dispatcher_exchanges"] = first == "alltoall" || first == "flex" ? 1 : 0;
  } else if (argument.flag == "--pipeline-model-parallel-layout") {
    facts.merge(layout_facts(first, pp));
  } else if (argument.flag == "--hierarchical-context-parallel-sizes") {
    std::int64_t product = 1;
    for (const shell::Value& value : argument.values)
      product *= parse_integer(value.text, 1, 1 << 10).value_or(0);
    if (argument.values.size() <= 3) facts["cp_hierarchical_product"] = product;
  }
}

}  // namespace

Facts rule_facts(const std::vector<Argument>& arguments, const program::ParallelConfig& parallel) {
  const auto known = setting_names();
  Facts facts;
  for (const char* name : kOffUnlessGiven) facts[name] = 0;
  facts["num_distributed_optimizer_instances"] = 1;
  // Of a dense model, too: its ranks are laid out as if it had experts.
  facts["etp"] = parallel.tp;
  bool has_fp8 = false;
  std::string recipe = "delayed";
  for (const Argument& argument : arguments) {
    std::string name = argument.flag.substr(2);
    std::ranges::replace(name, '-', '_');
    if (known.contains(name)) add_setting(facts, name, argument);
    if (name == "expert_tensor_parallel_size") add_setting(facts, "etp", argument);
    add_lists(facts, argument, parallel.pp);
    has_fp8 = has_fp8 || name == "fp8_format";
    if (name == "fp8_recipe" && !argument.values.empty()) recipe = argument.values.front().text;
  }
  facts["fp8_delayed"] = has_fp8 && recipe == "delayed" ? 1 : 0;
  return facts;
}

std::vector<std::string> refusals(const program::Plan& plan) {
  std::vector<Argument> arguments;
  for (const Flag& flag : flags()) {
    const std::optional<Values> values = flag.write(plan);
    if (!values) continue;
    Argument argument{std::string(flag.name), {}, "the plan"};
    for (const std::string& value : *values) argument.values.push_back({value, {}});
    arguments.push_back(std::move(argument));
  }
  std::vector<std::string> messages;
  for (const Judgement& judgement :
       judge(rules_for(kTarget), plan, rule_facts(arguments, plan.parallel)))
    if (judgement.refuses())
      messages.push_back(
          fmt::format("{} ({}): {}", judgement.id, judgement.name, judgement.message));
  return messages;
}

}  // namespace meshplan::planner::megatron
