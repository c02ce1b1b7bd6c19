#include "sim/fit/published_table.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <sstream>

#include "core/csv.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "fit/published_cells.hpp"
#include "program/plan/pipeline_layout.hpp"
#include "program/plan_file/stack_settings.hpp"
#include "sim/stacks/execution_profile.hpp"

namespace meshplan::sim {
namespace {

const std::vector<std::string> kColumns{"id",
                                        "family",
                                        "suite",
                                        "source",
                                        "cluster",
                                        "software",
                                        "model",
                                        "layers",
                                        "hidden",
                                        "ffn_hidden",
                                        "heads",
                                        "kv_heads",
                                        "head_dim",
                                        "vocab",
                                        "activation",
                                        "experts",
                                        "topk",
                                        "moe_ffn_hidden",
                                        "shared_expert_ffn",
                                        "arch_notes",
                                        "seq_len",
                                        "num_gpus",
                                        "tp",
                                        "pp",
                                        "vpp",
                                        "cp",
                                        "ep",
                                        "etp",
                                        "dp",
                                        "zero_stage",
                                        "sequence_parallel",
                                        "micro_batch_size",
                                        "global_batch_size",
                                        "precision",
                                        "recompute",
                                        "attention",
                                        "overlap",
                                        "switches",
                                        "step_time_s",
                                        "step_time_basis",
                                        "peak_mem_gib",
                                        "peak_mem_kind",
                                        "notes"};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

template <class T, std::size_t N>
T choose(const std::string& column, const std::string& value,
         const std::array<std::pair<const char*, T>, N>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, result] : choices) {
    if (value == name) return result;
    names.emplace_back(name);
  }
  throw ConfigError(fmt::format("{}: {}", column, unknown_name_message("value", value, names)));
}

const std::vector<std::string> kSwitches{"alibi",
                                         "async_tp",
                                         "balanced_routing",
                                         "compile",
                                         "cp_a2a",
                                         "cp_ring",
                                         "cuda_graphs",
                                         "dropout",
                                         "eager",
                                         "embedding_and_head_as_layers",
                                         "embedding_layernorm",
                                         "flushes",
                                         "fp32_grad_accum",
                                         "fused_dispatch",
                                         "megatron_fsdp",
                                         "moe_a2a_overlap",
                                         "mtp",
                                         "no_grouped_gemm",
                                         "offload_activations",
                                         "offload_optimizer",
                                         "offload_parameters",
                                         "one_micro_batch",
                                         "reduce_in_bf16",
                                         "token_drop"};

double probability(const std::string& value) {
  if (const auto number = parse_number(value, 0, 1)) return *number;
  throw ConfigError(fmt::format("switches: dropout:{}: expected a number from 0 to 1", value));
}

/// Of the pipeline in a step: "flushes:4".
int flushes(const std::string& value, const TrainingRun& run) {
  const int all = run.num_microbatches();
  const auto number = parse_integer(value, 1, std::max(1, all));
  if (!number || all % *number != 0)
    throw ConfigError(fmt::format(
        "switches: flushes:{}: expected a divisor of the {} micro-batches of a step", value, all));
  return *number;
}

/// Words of the column that are settings of the stack, as they are named everywhere else.
struct SettingWord {
  std::string_view word;
  std::string_view setting;
};
constexpr std::array<SettingWord, 12> kSettingWords{{
    {"async_tp", "async_tp=true"},
    {"balanced_routing", "balanced_routing=true"},
    {"compile", "compile=all"},
    {"cuda_graphs", "cuda_graphs=partial"},
    {"cuda_graphs:full", "cuda_graphs=full"},
    {"eager", "compile=none"},
    {"fp32_grad_accum", "gradient_dtype=fp32"},
    {"megatron_fsdp", "megatron_fsdp=true"},
    {"moe_a2a_overlap", "overlap_ep=true"},
    {"no_grouped_gemm", "grouped_experts=false"},
    {"reduce_in_bf16", "gradient_sum_dtype=bf16"},
    {"token_drop", "token_drop=true"},
}};

/// "NAME=VALUE" in the words of a plan's stack, or one of the column's own.
bool set_setting(const std::string& word, TrainingRun& run) {
  auto known = std::ranges::find(kSettingWords, word, &SettingWord::word);
  if (known == kSettingWords.end())  // "cuda_graphs:moe_router|moe_preprocess": of a part
    known = std::ranges::find(kSettingWords, word.substr(0, word.find(':')), &SettingWord::word);
  if (known == kSettingWords.end() && word.find('=') == std::string::npos) return false;
  program::Stack stack{.settings = run.settings};
  program::set_stack(stack, known == kSettingWords.end() ? word : known->setting, "switches:");
  run.settings = stack.settings;
  return true;
}

void set_switch(const std::string& word, TrainingRun& run) {
  if (set_setting(word, run)) return;
  const auto colon = word.find(':');
  const std::string key = word.substr(0, colon);
  const std::string value = colon == std::string::npos ? "" : word.substr(colon + 1);
  if (key == "one_micro_batch")
    run.micro_batch_size = static_cast<int>(run.global_batch_size / run.parallel.dp);
  else if (key == "cp_a2a")
    run.context_parallel = program::ContextMethod::Ulysses;
  else if (key == "cp_ring")
    run.context_parallel = program::ContextMethod::Ring;
  else if (key == "embedding_and_head_as_layers")
    run.count_ends_as_layers = true;
  else if (key == "fused_dispatch") {
    run.any_fused_dispatch = true;
    run.settings.expert_dispatch = program::ExpertDispatch::DeepEp;
  } else if (key == "flushes")
    run.flushes = flushes(value, run);
  else if (key == "offload_activations")
    run.offload_activation_layers = number_after(value, "").value_or(run.model.num_layers);
  else if (key == "offload_optimizer")
    run.offload_optimizer = true;
  else if (key == "offload_parameters")
    run.offload_parameters = true;
  else if (key == "dropout")
    run.settings.dropout = probability(value);
  else if (key == "mtp")
    run.model.mtp_layers = 1;
  else if (key == "embedding_layernorm")
    run.model.embedding_norm = true;
  else if (key == "alibi")
    run.model.positions = models::Positions::None;
  else
    throw ConfigError(fmt::format("switches: {}", unknown_name_message("switch", key, kSwitches)));
}

/// "core_attn+moe_act", "['mla_up_proj', 'mlp']": Megatron's names of modules, or ours.
models::ModuleSet modules_of(std::string text) {
  static const std::vector<std::pair<std::string, models::Module>> kMegatronNames{
      {"core_attn", models::Module::Attention}, {"layernorm", models::Module::Norms}};
  for (char& c : text)
    if (std::string_view("[]'\" |/&,").find(c) != std::string_view::npos) c = '+';
  models::ModuleSet modules;
  for (const std::string& name : split(text, '+')) {
    const auto known =
        std::ranges::find(kMegatronNames, name, &std::pair<std::string, models::Module>::first);
    if (known != kMegatronNames.end())
      modules.add(known->second);
    else
      for (const models::Module module : models::parse_modules(name).list()) modules.add(module);
  }
  return modules;
}

/// What stands behind "selective:"; alone, what the stack means by it.
void set_selective(const std::string& what, TrainingRun& run) {
  if (what == "core_attn") {
    run.recompute = RunRecompute::CoreAttention;
  } else if (what == "per_op") {
    run.recompute = RunRecompute::PerOp;
  } else if (!what.empty()) {
    run.recompute = RunRecompute::Modules;
    run.recompute_modules = modules_of(what);
  } else {
    const bool operations = load_execution_profile(run.profile).can.recomputes_operations;
    run.recompute = operations ? RunRecompute::PerOp : RunRecompute::CoreAttention;
  }
}

void set_recompute(const PublishedCells& row, TrainingRun& run) {
  const std::string& text = row.text("recompute");
  run.recompute_stated = !text.empty();
  if (text.empty() || text == "none") return;
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string what = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (kind == "full") {
    run.recompute = RunRecompute::Full;
    if (what == "every_2nd_layer")
      run.recompute = RunRecompute::EverySecondLayer;
    else if (!what.empty())
      run.recompute_layers = parse_integer(what, 0, limits::kLayers);
    if (!what.empty() && what != "every_2nd_layer" && !run.recompute_layers)
      throw ConfigError(fmt::format(
          "recompute: '{}': expected full, full:<layers> or full:every_2nd_layer", text));
  } else if (kind == "selective") {
    set_selective(what, run);
  } else {
    throw ConfigError(fmt::format("recompute: '{}' is not none, full or selective", text));
  }
}

void set_parallel(const PublishedCells& row, TrainingRun& run) {
  auto& p = run.parallel;
  p.tp = row.integer("tp", 1);
  p.pp = row.integer("pp", 1);
  p.vpp = row.integer("vpp", 1);
  p.cp = row.integer("cp", 1);
  p.ep = row.integer("ep", 1);
  p.etp = row.integer("etp", run.model.moe ? p.tp : 1);
  const int gpus = row.integer("num_gpus");
  if (gpus > limits::kRanks)
    throw ConfigError(fmt::format("num_gpus: {}: expected at most {}", gpus, limits::kRanks));
  // Degrees are below 2^31: beyond the ranks, a product in floating point is exact enough.
  const double replica = static_cast<double>(p.tp) * p.pp * p.cp;
  if (replica > gpus || gpus % (p.tp * p.pp * p.cp) != 0)
    throw ConfigError(
        fmt::format("num_gpus: {} is not a multiple of tp*pp*cp = {:.10g}", gpus, replica));
  p.dp = gpus / (p.tp * p.pp * p.cp);
  const int ends = 2;  // embedding and head may count as layers
  if (static_cast<double>(p.pp) * p.vpp > run.model.num_layers + ends)
    throw ConfigError(fmt::format("vpp: pp({}) * vpp({}) exceeds the {} layers", p.pp, p.vpp,
                                  run.model.num_layers));
  // A pipeline is played over rounds of its stages.
  if (static_cast<double>(p.pp) * p.pp * p.vpp > limits::kLayerRuns)
    throw ConfigError(fmt::format("pp: pp({}) * pp * vpp({}) must be at most {}", p.pp, p.vpp,
                                  limits::kLayerRuns));
  for (const auto& [name, degree] : {std::pair{"ep", p.ep}, {"etp", p.etp}})
    if (degree > gpus)
      throw ConfigError(fmt::format("{}: {} exceeds the {} GPUs", name, degree, gpus));
  const std::string& sp = row.text("sequence_parallel");
  if (!sp.empty() && sp != "yes" && sp != "no")
    throw ConfigError(
        fmt::format("sequence_parallel: {}", unknown_name_message("value", sp, {"yes", "no"})));
  p.sp = sp == "yes" && p.tp > 1;
  run.sp_stated = row.has("sequence_parallel");
}

/// "first:13;last:14": Megatron-LM's --decoder-first- and --decoder-last-pipeline-num-layers; what
/// is between is divided evenly.
std::vector<program::LayoutStage> layout_of_ends(const std::string& text, int num_layers,
                                                 int positions) {
  const auto fail = [&](const std::string& what) {
    throw ConfigError(fmt::format("layout: '{}': {}", text, what));
  };
  const std::optional<int> first = number_after(text, "first:"), last = number_after(text, "last:");
  const int between = positions - (first ? 1 : 0) - (last ? 1 : 0);
  const int left = num_layers - first.value_or(0) - last.value_or(0);
  if (between < 0 || left < 0 || (between == 0 ? left != 0 : left % between != 0))
    fail(fmt::format("{} of {} layers are left for {} stages; expected as many for each", left,
                     num_layers, between));
  std::vector<program::LayoutStage> stages(at(positions));
  for (program::LayoutStage& stage : stages) stage.layers = between == 0 ? 0 : left / between;
  if (first) stages.front().layers = *first;
  if (last) stages.back().layers = *last;
  return stages;
}

/// "7,8,8,7": layers of each virtual stage, in the order of the forward pass.
std::vector<program::LayoutStage> layout_of_counts(const std::string& text) {
  std::vector<program::LayoutStage> stages;
  std::string commas = text;
  for (char& c : commas)
    if (c == ';' || c == ' ' || c == '-') c = ',';
  for (const std::string& count : split(commas, ',')) {
    const auto layers = parse_integer(count, 0, limits::kLayers);
    if (!layers)
      throw ConfigError(fmt::format(
          "layout: '{}': '{}' is no number of layers; expected 'E(t*2|)*4L' (E embedding, t layer, "
          "m prediction module, L loss, | between virtual stages), '7,8,8,7' or 'first:7;last:7'",
          text, count));
    stages.push_back({.layers = *layers});
  }
  return stages;
}

/// How the row says that its layers are dealt to the stages, if it does. What it leaves open of vpp
/// the layout says.
void set_layout(const PublishedCells& row, TrainingRun& run) {
  const std::string& text = row.text_or_empty("layout");
  if (text.empty()) return;
  auto& p = run.parallel;
  const int modules = run.model.mtp_layers;
  const bool ends = mentions(text, "first:") || mentions(text, "last:");
  if (ends) {
    run.layout = layout_of_ends(text, run.model.num_layers, p.pp * p.vpp);
  } else if (text.find_first_of("Et") != std::string::npos) {
    run.layout = program::parse_pipeline_layout(text);
  } else {
    run.layout = layout_of_counts(text);
  }
  run.layout.front().embedding = run.layout.back().loss = true;
  const auto stages = static_cast<int>(run.layout.size());
  if (!row.has("vpp") && stages % p.pp == 0) p.vpp = stages / p.pp;
  if (stages != p.pp * p.vpp)
    throw ConfigError(
        fmt::format("layout: '{}' has {} virtual stages; expected pp({}) * vpp({}) = {}", text,
                    stages, p.pp, p.vpp, p.pp * p.vpp));
  int layers = 0, predictions = 0;
  for (const program::LayoutStage& stage : run.layout) {
    layers += stage.layers;
    predictions += stage.predictions;
  }
  if (predictions == 0) run.layout.back().predictions = predictions = modules;
  if (layers != run.model.num_layers)
    throw ConfigError(fmt::format("layout: '{}' has {} layers; expected the model's {}", text,
                                  layers, run.model.num_layers));
  run.model.mtp_layers = predictions;
}

void set_sharding(const PublishedCells& row, TrainingRun& run) {
  const std::string& text = row.text("zero_stage");
  if (text.empty()) {
    run.zero_stage = -1;  // left to the profile
    return;
  }
  static const std::vector<std::string> kStages{"0", "1", "2", "3", "3:in_node"};
  if (std::ranges::find(kStages, text) == kStages.end())
    throw ConfigError(fmt::format("zero_stage: '{}' is not 0, 1, 2, 3 or 3:in_node", text));
  run.zero_stage = text[0] - '0';
  run.shard_in_node = mentions(text, "in_node");
}

TrainingRun run_of(const PublishedCells& row) {
  TrainingRun run;
  run.model = published_model(row);
  run.cluster = row.text("cluster");
  run.profile = row.text("software");
  set_parallel(row, run);
  set_sharding(row, run);
  run.seq_len = row.integer("seq_len");
  run.micro_batch_size = row.integer("micro_batch_size");
  run.global_batch_size = row.integer("global_batch_size");
  if (run.micro_batch_size * run.seq_len > limits::kTokens)
    throw ConfigError(fmt::format("micro_batch_size: {} * seq_len({}) tokens; at most {}",
                                  run.micro_batch_size, run.seq_len, limits::kTokens));
  const std::int64_t per_round = std::int64_t{run.micro_batch_size} * run.parallel.dp;
  if (run.global_batch_size % per_round != 0)
    throw ConfigError(
        fmt::format("global_batch_size: {} is not a multiple of micro_batch_size * dp = {}",
                    run.global_batch_size, per_round));
  run.precision = choose(
      "precision", row.text("precision"),
      std::array<std::pair<const char*, RunPrecision>, 6>{{{"bf16", RunPrecision::Bf16},
                                                           {"fp16", RunPrecision::Fp16},
                                                           {"fp8", RunPrecision::Fp8},
                                                           {"mxfp8", RunPrecision::MxFp8},
                                                           {"fp8-block", RunPrecision::Fp8Block},
                                                           {"nvfp4", RunPrecision::NvFp4}}});
  run.settings.attention = choose("attention", row.text("attention"),
                                  std::array<std::pair<const char*, program::AttentionBackend>, 2>{
                                      {{"flash", program::AttentionBackend::Flash},
                                       {"unfused", program::AttentionBackend::Unfused}}});
  set_recompute(row, run);
  run.settings.overlap_dp = run.settings.overlap_tp = run.settings.overlap_p2p = false;
  for (const std::string& part : split(row.text("overlap"), '+')) {
    static const std::vector<std::string> kOverlaps{"dp", "none", "p2p", "tp"};
    if (std::ranges::find(kOverlaps, part) == kOverlaps.end())
      throw ConfigError(fmt::format("overlap: {}", unknown_name_message("value", part, kOverlaps)));
    if (part == "dp") run.settings.overlap_dp = true;
    if (part == "tp") run.settings.overlap_tp = true;
    if (part == "p2p") run.settings.overlap_p2p = true;
  }
  for (const std::string& word : split(row.text("switches"), ';')) set_switch(word, run);
  set_layout(row, run);
  return run;
}

MemoryKind memory_kind_of(const std::string& text) {
  if (mentions(text, "smi")) return MemoryKind::Visible;
  if (mentions(text, "allocated")) return MemoryKind::Allocated;
  return mentions(text, "reserved") ? MemoryKind::Reserved : MemoryKind::Allocated;
}

/// A release that the stack's profile cannot place is left out, and the row says so.
/// @throws ConfigError if the row's software names another one itself
void give_release(const std::string& release, PublishedRow& row) {
  const SoftwareRelease stated = parse_software(row.run.profile);
  const std::string named = stated.name + "@" + release;
  if (stated.release && named != row.run.profile)
    throw ConfigError(fmt::format("release: '{}', but software is '{}'; expected one of them",
                                  release, row.run.profile));
  try {
    load_execution_profile(named);
    row.run.profile = named;
    row.run.undated = false;
  } catch (const ConfigError& error) {
    row.note = fmt::format("release left out: {}", error.what());
  }
}

/// A run that does not say whether it was compiled is as its stack's configurations are.
void leave_uncompiled(TrainingRun& run) {
  const bool half = run.precision == RunPrecision::Bf16 || run.precision == RunPrecision::Fp16;
  if (half && !load_execution_profile(run.profile).compiles_unasked)
    run.settings.compile = run.settings.compile.value_or(program::CompiledPart::None);
}

PublishedRow row_of(const PublishedCells& row) {
  PublishedRow published;
  published.id = row.text("id");
  published.family = row.text("family");
  published.suite = row.text("suite");
  published.model = row.text("model");
  try {
    published.step_time_s = row.number("step_time_s");
    published.peak_mem_gib = row.number("peak_mem_gib");
    published.memory_kind = memory_kind_of(row.text("peak_mem_kind"));
    if (published.memory_kind == MemoryKind::Visible && published.peak_mem_gib &&
        mentions(row.text("peak_mem_kind"), "GB"))
      published.peak_mem_gib = *published.peak_mem_gib;
    published.run = run_of(row);
    published.run.undated = !parse_software(published.run.profile).release;
    leave_uncompiled(published.run);
    if (const std::string& release = row.text_or_empty("release"); !release.empty())
      give_release(release, published);
  } catch (const ConfigError& error) {
    published.error = error.what();
  }
  return published;
}

}  // namespace

namespace {

using Columns = std::map<std::string, std::size_t>;

/// @throws ConfigError for a table without a line, a column that appears twice, or one that lacks
Columns columns_of(const std::vector<std::vector<std::string>>& cells, const std::string& file,
                   const std::vector<std::string>& needed) {
  if (cells.empty()) throw ConfigError(fmt::format("{}: is empty; expected a header line", file));
  Columns columns;
  for (std::size_t i = 0; i < cells.front().size(); ++i)
    if (!columns.emplace(cells.front()[i], i).second)
      throw ConfigError(fmt::format("{}: line 1: the column '{}' appears twice", file,
                                    short_line(cells.front()[i])));
  for (const std::string& column : needed)
    if (!columns.contains(column))
      throw ConfigError(fmt::format("{}: line 1: column '{}' is missing", file, column));
  return columns;
}

/// @throws ConfigError for a line with more cells than columns
PublishedCells cells_of(const Columns& columns, const std::vector<std::vector<std::string>>& cells,
                        std::size_t line, const std::string& file) {
  if (cells[line].size() > cells.front().size())
    throw ConfigError(fmt::format("{}: row {}: {} cells, but the header has {}", file, line + 1,
                                  cells[line].size(), cells.front().size()));
  return {columns, cells[line]};
}

}  // namespace

std::vector<PublishedRow> parse_published_table(std::string_view text, const std::string& file) {
  const auto cells = parse_csv(text, file);
  const Columns columns = columns_of(cells, file, kColumns);
  std::vector<PublishedRow> rows;
  for (std::size_t i = 1; i < cells.size(); ++i) {
    const PublishedCells row = cells_of(columns, cells, i, file);
    try {
      rows.push_back(row_of(row));
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: row {}: {}", file, i + 1, error.what()));
    }
  }
  return rows;
}

void take_releases(std::string_view text, const std::string& file,
                   std::vector<PublishedRow>& rows) {
  const auto cells = parse_csv(text, file);
  const Columns columns = columns_of(cells, file, {"id", "software", "release"});
  std::map<std::string, PublishedRow*> by_id;
  std::vector<std::string> ids;
  for (PublishedRow& row : rows) {
    by_id.emplace(row.id, &row);
    ids.push_back(row.id);
  }
  for (std::size_t i = 1; i < cells.size(); ++i) {
    const PublishedCells line = cells_of(columns, cells, i, file);
    const auto fail = [&](const std::string& what) {
      throw ConfigError(fmt::format("{}: row {}: {}", file, i + 1, what));
    };
    const std::string& id = line.text("id");
    const auto found = by_id.find(id);
    if (found == by_id.end())
      fail(fmt::format("id '{}' is none of the table's; nearest: '{}'", id,
                       nearest_choice(id, ids)));
    PublishedRow& row = *found->second;
    if (!row.error.empty()) continue;  // is no run
    const std::string stated = parse_software(row.run.profile).name;
    if (line.text("software") != stated)
      fail(fmt::format("software '{}': in the table '{}' runs on '{}'", line.text("software"), id,
                       stated));
    try {
      give_release(line.text("release"), row);
    } catch (const ConfigError& error) {
      fail(error.what());
    }
  }
}

}  // namespace meshplan::sim
