#include "anchors/run_words.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/index.hpp"
#include "program/plan/pipeline_layout.hpp"
#include "program/plan/plan_names.hpp"
#include "program/plan_file/stack_settings.hpp"

namespace meshplan::sim {
namespace {

/// "tp4 cp2, fp8_attention": a degree of 1 and what is off are left out.
class Words {
 public:
  void degree(std::string_view name, std::int64_t value) {
    if (value != 1) add(fmt::format("{}{}", name, value));
  }
  void number(std::string_view name, std::int64_t value) {
    if (value != 0) add(fmt::format("{}{}", name, value));
  }
  void flag(std::string_view name, bool on) {
    if (on) add(name);
  }
  void add(std::string_view word) {
    if (!text_.empty()) text_ += ' ';
    text_ += word;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string recompute_words(const TrainingRun& run) {
  switch (run.recompute) {
    case RunRecompute::None:
      return "";
    case RunRecompute::Full:
      return "recompute:full";
    case RunRecompute::EverySecondLayer:
      return "recompute:every_2nd_layer";
    case RunRecompute::CoreAttention:
      return "recompute:core_attn";
    case RunRecompute::Modules:
      return "recompute:" + models::to_string(run.recompute_modules);
    case RunRecompute::PerOp:
      return "recompute:per_op";
  }
  throw InvariantError("unknown recompute");
}

/// Settings that change what ranks or steps exchange, but nothing inside a layer.
constexpr std::array<std::string_view, 8> kOfWholeRun{
    "overlap_dp",          "overlap_p2p", "gradient_sum_dtype", "first_moment_dtype",
    "second_moment_dtype", "muon_tp",     "layer_wise_layout",  "megatron_fsdp"};

void add_settings(const TrainingRun& run, bool of_whole_run, Words& words) {
  for (const std::string& setting : stated_settings(run.settings)) {
    const std::string_view name = std::string_view(setting).substr(0, setting.find('='));
    const bool is_off = setting.ends_with("=false") || setting.ends_with("=none");
    const bool whole = std::ranges::find(kOfWholeRun, name) != kOfWholeRun.end();
    if (whole == of_whole_run && !is_off) words.add(setting);
  }
}

void add_kernels(const TrainingRun& run, Words& words) {
  words.flag("unfused", run.attention == AttentionKernel::Unfused);
  add_settings(run, false, words);
  if (run.context_parallel)
    words.add(fmt::format("cp:{}", meshplan::name_of(*run.context_parallel)));
  words.number("offload_activations:", run.offload_activation_layers);
  if (const auto& adapters = run.model.adapters)
    words.add(fmt::format("lora{}:{}", adapters->rank, fmt::join(adapters->modules, "+")));
  if (!run.frozen.empty()) words.add(fmt::format("frozen:{}", fmt::join(run.frozen, "+")));
  if (run.expert_imbalance > 1) words.add(fmt::format("imbalance{:g}", run.expert_imbalance));
}

/// "layout_E3/2/2m/0L"
std::string layout_words(const std::vector<program::LayoutStage>& layout) {
  std::string words;
  for (const program::LayoutStage& stage : layout)
    words +=
        fmt::format("{}{}{}{}{}", words.empty() ? "layout_" : "/", stage.embedding ? "E" : "",
                    stage.layers, std::string(at(stage.predictions), 'm'), stage.loss ? "L" : "");
  return words;
}

}  // namespace

std::string words_of_layers(const TrainingRun& run) {
  Words words;
  words.degree("tp", run.parallel.tp);
  words.flag("sp", run.parallel.sp);
  words.degree("cp", run.parallel.cp);
  words.degree("ep", run.parallel.ep);
  if (run.model.moe) words.degree("etp", run.parallel.etp);
  words.add(fmt::format("{}x{}_tokens", run.micro_batch_size, run.seq_len));
  if (const std::string recompute = recompute_words(run); !recompute.empty()) words.add(recompute);
  add_kernels(run, words);
  return words.take();
}

std::string words_of_run(const TrainingRun& run) {
  Words words;
  words.add(words_of_layers(run));
  words.degree("pp", run.parallel.pp);
  words.degree("vpp", run.parallel.vpp);
  if (run.parallel.pp > 1) words.add(meshplan::name_of(run.pipeline_schedule()));
  if (!run.layout.empty()) words.add(layout_words(run.layout));
  words.degree("flushes", run.flushes);
  words.degree("dp", run.parallel.dp);
  words.number("zero", run.zero_stage);
  words.add(fmt::format("{}_sequences {}_layers", run.global_batch_size, run.model.num_layers));
  if (run.recompute_layers) words.add(fmt::format("recompute_layers{}", *run.recompute_layers));
  words.number("muon", run.orthogonal_steps);
  words.flag("in_node", run.shard_in_node);
  words.flag("keeps_gathered", run.keeps_gathered);
  words.flag("defers_gradients", run.defers_gradients);
  add_settings(run, true, words);
  words.flag("embedding_and_head_as_layers", run.count_ends_as_layers);
  words.flag("offload_optimizer", run.offload_optimizer);
  words.flag("offload_parameters", run.offload_parameters);
  return words.take();
}

}  // namespace meshplan::sim
