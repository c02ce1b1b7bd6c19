#include "anchors/run_words.hpp"

#include <fmt/format.h>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/index.hpp"
#include "program/plan/pipeline_layout.hpp"
#include "program/plan/plan_names.hpp"

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

void add_kernels(const TrainingRun& run, Words& words) {
  const RunSwitches& s = run.switches;
  words.flag("unfused", run.attention == AttentionKernel::Unfused);
  words.flag("overlap_tp", run.overlap_tp);
  words.flag("compile", s.compile);
  words.flag("eager", s.eager);
  words.flag("async_tp", s.async_tp);
  words.flag("token_drop", s.token_drop);
  words.flag("no_grouped_gemm", s.no_grouped_gemm);
  words.flag("balanced_routing", s.balanced_routing);
  words.flag("fused_dispatch", s.fused_dispatch);
  words.flag("moe_a2a_overlap", s.moe_a2a_overlap);
  words.flag("cuda_graphs:partial", s.cuda_graphs == CudaGraphs::Partial);
  words.flag("cuda_graphs:full", s.cuda_graphs == CudaGraphs::Full);
  words.flag("cp_a2a", s.cp_all_to_all);
  words.flag("cp_ring", s.cp_ring);
  words.flag("fused_experts", run.fused_experts);
  words.flag("fp8_attention", run.fp8_attention);
  words.flag("fp32_gradients", s.fp32_gradients);
  words.number("offload_activations:", s.offload_activation_layers);
  if (s.dropout > 0) words.add(fmt::format("dropout:{:g}", s.dropout));
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
  const RunSwitches& s = run.switches;
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
  words.flag("in_node", run.shard_in_node);
  words.flag("keeps_gathered", run.keeps_gathered);
  words.flag("defers_gradients", run.defers_gradients);
  words.flag("overlap_dp", run.overlap_dp);
  words.flag("overlap_p2p", run.overlap_p2p);
  words.flag("embedding_and_head_as_layers", s.embedding_and_head_as_layers);
  words.flag("reduce_in_bf16", s.reduce_in_bf16);
  words.flag("megatron_fsdp", s.megatron_fsdp);
  words.flag("offload_optimizer", s.offload_optimizer);
  words.flag("offload_parameters", s.offload_parameters);
  return words.take();
}

}  // namespace meshplan::sim
