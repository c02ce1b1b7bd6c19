#include "recipes.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <regex>

#include "core/csv.hpp"
#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "models/model_modules.hpp"
#include "program/checks/check.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::bench {
namespace {

using program::RecomputeKind;
using program::ScheduleKind;

using Row = std::map<std::string, std::string>;

/// Presets of equal dimensions, and the tokens of a sequence in Megatron-Bridge's base
/// configuration of the model, which its recipes keep unless they state others.
struct KnownModel {
  const char* recipe;
  const char* preset;
  std::int64_t seq_len;
};
constexpr std::array kModels = {
    KnownModel{"deepseek_v2", "deepseek-v2", 4096},
    KnownModel{"deepseek_v2_lite", "deepseek-v2-lite", 4096},
    KnownModel{"deepseek_v3", "deepseek-v3", 4096},
    KnownModel{"deepseek_v4_flash", "deepseek-v4-flash", 4096},
    KnownModel{"deepseek_v4_pro", "deepseek-v4-pro", 4096},
    KnownModel{"gemma2_27b", "gemma2-27b", 4096},
    KnownModel{"gemma2_2b", "gemma2-2b", 4096},
    KnownModel{"gemma2_9b", "gemma2-9b", 4096},
    KnownModel{"gemma3_1b", "gemma3-1b", 32768},
    KnownModel{"gemma4_e4b", "gemma4-e4b", 4096},
    KnownModel{"glm45_355b", "glm4.5", 4096},
    KnownModel{"glm45_air_106b", "glm4.5-air", 4096},
    KnownModel{"glm52", "glm5.2", 4096},
    KnownModel{"gpt_oss_120b", "gpt-oss-120b", 4096},
    KnownModel{"gpt_oss_20b", "gpt-oss-20b", 4096},
    KnownModel{"kimi_k2", "kimi-k2", 4096},
    KnownModel{"llama2_7b", "llama2-7b", 4096},
    KnownModel{"llama31_405b", "llama3.1-405b", 8192},
    KnownModel{"llama31_70b", "llama3-70b", 8192},
    KnownModel{"llama31_8b", "llama3-8b", 8192},
    KnownModel{"llama32_1b", "llama3.2-1b", 8192},
    KnownModel{"llama32_3b", "llama3.2-3b", 8192},
    KnownModel{"llama3_70b", "llama3-70b", 8192},
    KnownModel{"llama3_8b", "llama3-8b", 8192},
    KnownModel{"minimax_m3", "minimax-m3", 4096},
    KnownModel{"moonlight_16b", "moonlight-16b-a3b", 4096},
    KnownModel{"_nemotron_3_super", "nemotron-3-super-120b-a12b", 4096},
    KnownModel{"nemotron_3_nano", "nemotron-3-nano-30b-a3b", 8192},
    KnownModel{"nemotron_3_super", "nemotron-3-super-120b-a12b", 4096},
    KnownModel{"nemotron_3_ultra", "nemotron-3-ultra-550b-a55b", 4096},
    KnownModel{"nemotronh_56b", "nemotron-h-56b", 8192},
    KnownModel{"qwen25_14b", "qwen2.5-14b", 4096},
    KnownModel{"qwen25_1p5b", "qwen2.5-1.5b", 4096},
    KnownModel{"qwen25_32b", "qwen2.5-32b", 4096},
    KnownModel{"qwen25_500m", "qwen2.5-0.5b", 4096},
    KnownModel{"qwen25_72b", "qwen2.5-72b", 4096},
    KnownModel{"qwen25_7b", "qwen2.5-7b", 4096},
    KnownModel{"qwen2_1p5b", "qwen2.5-1.5b", 4096},
    KnownModel{"qwen2_500m", "qwen2.5-0.5b", 4096},
    KnownModel{"qwen2_72b", "qwen2.5-72b", 4096},
    KnownModel{"qwen2_7b", "qwen2.5-7b", 4096},
    KnownModel{"qwen35_text_35b_a3b", "qwen3.5-35b-a3b", 4096},
    KnownModel{"qwen35_vl_122b_a10b", "qwen3.5-122b-a10b", 4096},
    KnownModel{"qwen35_vl_27b", "qwen3.5-27b", 4096},
    KnownModel{"qwen35_vl_35b_a3b", "qwen3.5-35b-a3b", 4096},
    KnownModel{"qwen35_vl_397b_a17b", "qwen3.5-397b-a17b", 4096},
    KnownModel{"qwen3_14b", "qwen3-14b", 4096},
    KnownModel{"qwen3_1p7b", "qwen3-1.7b", 4096},
    KnownModel{"qwen3_235b_a22b", "qwen3-235b-a22b", 4096},
    KnownModel{"qwen3_30b_a3b", "qwen3-30b-a3b", 4096},
    KnownModel{"qwen3_32b", "qwen3-32b", 4096},
    KnownModel{"qwen3_4b", "qwen3-4b", 4096},
    KnownModel{"qwen3_600m", "qwen3-0.6b", 4096},
    KnownModel{"qwen3_8b", "qwen3-8b", 4096},
    KnownModel{"qwen3_next_80b_a3b", "qwen3-next-80b-a3b", 4096},
    KnownModel{"qwen3_vl_235b_a22b", "qwen3-vl-235b-a22b", 4096},
    KnownModel{"qwen3_vl_30b_a3b", "qwen3-vl-30b-a3b", 4096},
    KnownModel{"qwen3_vl_8b", "qwen3-vl-8b", 4096},
    KnownModel{"step35_196b_a11b", "step3.7-flash", 4096},
};

// Of recipes that state none: _pretrain_common() in src/megatron/bridge/recipes/common.py.
constexpr int kCommonGlobalBatch = 32;
constexpr int kCommonMicroBatch = 2;

const std::map<std::string, std::string> kClusters = {{"h100", "dgx-h100"},
                                                      {"b200", "dgx-b200"},
                                                      {"b300", "dgx-b300"},
                                                      {"gb200", "gb200-nvl72"},
                                                      {"gb300", "gb300-nvl72"}};

/// Of names, those that our own program does not execute.
const std::map<std::string, program::Fp8Scaling> kOtherPrecisions = {
    {"fp8mx", program::Fp8Scaling::MxFp8},
    {"fp8sc", program::Fp8Scaling::Blockwise},
    {"nvfp4", program::Fp8Scaling::NvFp4}};

/// "llama3_70b_pretrain_32gpu_h100_bf16_16k_config"
struct Name {
  std::string model, gpu, precision;
};
std::optional<Name> parse_name(const std::string& name) {
  static const std::regex pattern("(.+)_pretrain_[0-9]+gpu_([a-z0-9]+)_([a-z0-9]+)(_.*)?");
  std::smatch match;
  if (!std::regex_match(name, match, pattern)) return std::nullopt;
  return Name{.model = match[1], .gpu = match[2], .precision = match[3]};
}

std::optional<int> count(const Row& row, const std::string& column) {
  constexpr int kMost = 1 << 20;
  return parse_integer(row.at(column), 0, kMost);
}

int degree(const Row& row, const std::string& column) {
  return std::max(1, count(row, column).value_or(1));
}

/// "8192" or "SEQUENCE_LENGTH_128K"
std::optional<std::int64_t> sequence(const std::string& cell) {
  static const std::regex thousands("SEQUENCE_LENGTH_([0-9]+)K");
  std::smatch match;
  if (std::regex_match(cell, match, thousands)) return 1024 * std::stoll(match[1]);
  return parse_integer(cell, 1, 1 << 24);
}

std::vector<std::string> quoted_words(const std::string& text) {
  static const std::regex word("'([a-z_]+)'");
  std::vector<std::string> words;
  for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i)
    words.push_back((*i)[1]);
  return words;
}

/// Those that a list of recomputed modules names, in our words; nothing if we do not know one.
std::optional<models::ModuleSet> modules_of(const std::vector<std::string>& names) {
  models::ModuleSet modules;
  for (const std::string& name : names) {
    if (name == "core_attn") continue;  // fused attention keeps no core
    const std::string own = name == "layernorm" ? "norms" : name;
    const auto known = from_name<models::Module>(own);
    if (!known) return std::nullopt;
    modules.add(*known);
  }
  return modules;
}

void set_recompute(const Row& row, Recipe& recipe) {
  program::Recompute& recompute = recipe.candidate.recompute;
  const std::vector<std::string> modules = quoted_words(row.at("recompute_modules"));
  if (row.at("recompute") == "full") {
    recompute.kind = RecomputeKind::Full;
    return;
  }
  const std::optional<models::ModuleSet> known = modules_of(modules);
  if (!known)
    recipe.assumed.push_back("recomputes modules that are not compared");
  else if (!known->empty())
    recompute = {.kind = RecomputeKind::Selective, .modules = *known};
}

void set_parallel(const Row& row, Recipe& recipe) {
  planner::Candidate& candidate = recipe.candidate;
  program::ParallelConfig& p = candidate.parallel;
  p = {.tp = degree(row, "tp"),
       .cp = degree(row, "cp"),
       .pp = degree(row, "pp"),
       .vpp = degree(row, "vpp"),
       .ep = degree(row, "ep"),
       .etp = degree(row, "etp")};
  p.sp = p.tp > 1 && row.at("sp") == "True";
  const int ranks = p.tp * p.cp * p.pp;
  if (recipe.work.gpus % ranks != 0)
    recipe.left_out = "degrees that do not divide the GPUs";
  else
    p.dp = recipe.work.gpus / ranks;
  if (p.vpp > 1) candidate.schedule = ScheduleKind::Interleaved;
  candidate.context_parallel = program::ContextMethod::Ring;  // Megatron's cp_comm_type: p2p
  if (!row.at("layout").empty()) recipe.assumed.push_back("layers divided evenly, not as laid out");
}

/// Megatron divides layers evenly or refuses, so a recipe that needs both ends counted counts them.
void set_stages(const Row& row, int num_layers, Recipe& recipe) {
  const int chunks = recipe.candidate.parallel.pp * recipe.candidate.parallel.vpp;
  recipe.candidate.count_ends_as_layers =
      row.at("account_embedding") == "True" ||
      (num_layers % chunks != 0 && (num_layers + 2) % chunks == 0);
}

void set_optimizer(const Row& row, Recipe& recipe) {
  planner::Candidate& candidate = recipe.candidate;
  const program::ParallelConfig& p = candidate.parallel;
  if (p.dp * p.cp == 1) return;
  if (row.at("mfsdp") == "True")
    candidate.zero_stage = 3;  // Megatron-FSDP's strategy optim_grads_params
  else if (row.at("dist_opt") != "False")
    candidate.zero_stage = 1;  // Megatron-Bridge's default
}

/// Has our own program all parts of the model?
bool is_run_by_us(const Work& work) {
  program::Plan plan;
  plan.model = models::load_preset(work.model);
  plan.workload = {.seq_len = 1, .global_batch_size = 1};
  return std::ranges::none_of(program::check(plan), [](const program::Violation& violation) {
    return violation.rule == "not-lowered";
  });
}

/// @returns why there is none; empty = there is
std::string set_work(const Row& row, Work& work, std::vector<std::string>& assumed) {
  const std::optional<Name> name = parse_name(row.at("recipe"));
  if (!name) return "not named after a model and a cluster";
  const auto* const model = std::ranges::find(kModels, name->model, &KnownModel::recipe);
  if (model == kModels.end()) return "a model without a preset";
  const auto cluster = kClusters.find(name->gpu);
  if (cluster == kClusters.end()) return fmt::format("{}: no preset of the cluster", name->gpu);
  const std::optional<int> batch = count(row, "gbs");
  if (!batch)
    assumed.push_back(fmt::format("a global batch of {} sequences", kCommonGlobalBatch));
  const std::optional<std::int64_t> seq_len = sequence(row.at("seq"));
  if (!seq_len) assumed.push_back(fmt::format("sequences of {}", model->seq_len));
  work = {
      .model = model->preset,
      .cluster = cluster->second,
      .gpus = count(row, "gpus").value_or(0),
      .global_batch_size = batch.value_or(kCommonGlobalBatch),
      .seq_len = seq_len.value_or(model->seq_len),
      .precision = name->precision == "bf16" ? program::Precision::BF16 : program::Precision::Fp8};
  const auto other = kOtherPrecisions.find(name->precision);
  if (other != kOtherPrecisions.end()) work.scaling = other->second;
  if (other != kOtherPrecisions.end() || !is_run_by_us(work)) work.software = "megatron-core";
  return "";
}

/// The recipes' dispatchers, DeepEP and HybridEP, send a token once to each node outside a domain.
int expert_node_ranks(const planner::Candidate& candidate, const sim::Cluster& cluster) {
  const int ranks = planner::expert_node_group(candidate, cluster.devices_per_node);
  if (ranks == 0) return 0;
  const program::Mesh mesh(candidate.parallel, candidate.rank_order);
  return sim::place(cluster, mesh, program::Group::Ep, 0).level > 0 ? ranks : 0;
}

Recipe recipe_of(const Row& row) {
  Recipe recipe{.name = row.at("recipe")};
  recipe.left_out = set_work(row, recipe.work, recipe.assumed);
  if (!recipe.left_out.empty()) return recipe;
  set_parallel(row, recipe);
  if (!recipe.left_out.empty()) return recipe;
  const bool common_batch = row.at("gbs").empty() && row.at("mbs").empty();
  recipe.candidate.micro_batch_size = common_batch ? kCommonMicroBatch : degree(row, "mbs");
  set_optimizer(row, recipe);
  set_recompute(row, recipe);
  const planner::SearchRequest request = request_of(recipe.work);
  set_stages(row, request.model.num_layers, recipe);
  models::ModuleSet& modules = recipe.candidate.recompute.modules;
  for (const models::Module module : modules.list())
    if (!models::has_module(request.model, module)) modules.remove(module);
  if (request.stack.is_own())
    recipe.candidate.expert_node_ranks = expert_node_ranks(recipe.candidate, request.cluster);
  const auto broken = program::check(planner::make_plan(request, recipe.candidate));
  if (!broken.empty())
    recipe.left_out = fmt::format("our rule '{}': {}", broken.front().rule, broken.front().message);
  return recipe;
}

}  // namespace

std::vector<Recipe> read_recipes(std::string_view csv, const std::string& file) {
  const auto cells = parse_csv(csv, file);
  if (cells.empty()) throw ConfigError(file + ": is empty; expected a header line");
  std::vector<Recipe> recipes;
  for (std::size_t i = 1; i < cells.size(); ++i) {
    Row row;
    for (std::size_t column = 0; column < cells[0].size(); ++column)
      row[cells[0][column]] = column < cells[i].size() ? cells[i][column] : "";
    try {
      recipes.push_back(recipe_of(row));
    } catch (const std::out_of_range&) {
      throw ConfigError(file + ": a column of Megatron-Bridge's recipes is missing");
    }
  }
  return recipes;
}

std::optional<planner::Candidate> in_pairs(planner::Candidate candidate) {
  const program::ParallelConfig& p = candidate.parallel;
  const bool allowed = p.pp == 1 || p.vpp > 1;
  if (p.ep == 1 || !allowed || candidate.zero_stage > 1) return std::nullopt;
  candidate.schedule = ScheduleKind::OverlappedOneFOneB;
  return candidate;
}

planner::SearchRequest request_of(const Work& work) {
  planner::SearchRequest request;
  request.model = models::load_preset(work.model);
  request.workload = {.seq_len = work.seq_len, .global_batch_size = work.global_batch_size};
  program::set_precision(request.workload, work.precision);
  request.stack.software = work.software;
  request.stack.settings.fp8_scaling = work.scaling;
  if (!request.stack.is_own() && request.model.moe)  // their dispatchers, as above
    request.stack.settings.expert_dispatch = work.cluster == "dgx-h100"
                                                 ? program::ExpertDispatch::DeepEp
                                                 : program::ExpertDispatch::HybridEp;
  request.cluster = sim::with_ranks(sim::load_cluster_preset(work.cluster), work.gpus);
  // Jobs on several NVLink domains of 72 take 64 GPUs of each: Slurm's --segment=16 of 4 GPUs.
  constexpr int kDomain = 72;
  constexpr int kSegment = 64;
  sim::FabricLevel& inner = request.cluster.fabric.front();
  if (inner.ranks_per_group == kDomain && work.gpus > kDomain) inner.ranks_per_group = kSegment;
  constexpr int kPlayed = 3;  // of the best estimates, which are within a few percent
  request.top = kPlayed;
  request.alternatives = false;
  return request;
}

}  // namespace meshplan::bench
