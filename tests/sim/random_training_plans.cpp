#include "sim/random_training_plans.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "models/model_spec.hpp"
#include "program/checks/check.hpp"
#include "sim/random_plans.hpp"

namespace meshplan::sim {
namespace {

using models::Module;
using program::Plan;
using program::RecomputeKind;

class Varier {
 public:
  Varier(Plan plan, testing::Random& random) : plan_(std::move(plan)), random_(random) {}

  Plan run(const std::vector<program::Precision>& precisions) {
    set_precision(plan_.workload, random_.pick(precisions));
    if (plan_.workload.precision == DType::F32) plan_.expert_dispatch_fp8 = false;
    if (random_.one_in(2)) choose_model();
    choose_recompute();
    if (random_.one_in(2)) choose_frozen();
    choose_offload();
    choose_exchange();
    if (random_.one_in(4)) choose_uneven_batch();
    return plan_;
  }

 private:
  int number(int below) { return static_cast<int>(random_.below(static_cast<std::size_t>(below))); }

  /// Plain MLPs, encoders, norms on both sides, normed heads, windows.
  void choose_model() {
    const std::vector<std::string> names = {
        "gpt2-124m", "gpt2-large", "bert-base",   "gemma3-1b", "gemma3-4b",    "gemma2-2b",
        "qwen3-8b",  "mistral-7b", "llama3.2-1b", "tiny-moe",  "gpt-oss-120b", "llama2-7b"};
    const int layers = plan_.model.num_layers;
    plan_.model = models::load_preset(random_.pick(names));
    plan_.model.num_layers = std::max(layers, static_cast<int>(plan_.model.layer_pattern.size()));
    plan_.model.mtp_layers = 0;
    if (!plan_.model.moe) {
      plan_.parallel.ep = plan_.parallel.etp = 1;
      plan_.expert_node_ranks = 0;
      plan_.expert_dispatch_fp8 = false;
    }
    if (!plan_.model.causal)
      plan_.workload.seq_len =
          std::min<std::int64_t>(plan_.workload.seq_len, plan_.model.max_positions);
  }

  void choose_recompute() {
    if (plan_.recompute.kind != RecomputeKind::Selective || random_.one_in(3)) return;
    std::vector<Module> all = {Module::Norms, Module::Activations, Module::Attention};
    if (plan_.model.ffn_size > 0) all.push_back(Module::Mlp);
    if (plan_.model.mla) all.push_back(Module::MlaUpProj);
    if (plan_.model.moe) all.insert(all.end(), {Module::Moe, Module::MoeAct});
    if (plan_.model.moe && plan_.model.moe->shared_expert_ffn_size > 0)
      all.push_back(Module::SharedExperts);
    for (const Module module : all)
      if (random_.one_in(2)) plan_.recompute.modules.add(module);
  }

  /// Patterns of docs/fine_tuning/frozen_parameters.md; one that matches nothing is a violation.
  void choose_frozen() {
    const int first = number(plan_.model.num_layers);
    const int last = first + number(plan_.model.num_layers - first);
    const std::string layer = fmt::format("layers.{}", first);
    const std::string range = fmt::format("layers.{}-{}", first, last);
    const std::vector<std::vector<std::string>> choices = {
        {"embedding"},
        {layer},
        {range},
        {layer + ".mlp"},
        {range + ".mlp"},
        {layer + ".self_attn"},
        {range + ".self_attn", "embedding"},
        {fmt::format("layers.0-{}", last), "embedding"},
        {"head"},
        {"*", "!head"},
        {"*", "!*norm*"},
        {"*", "!" + layer},
        {"*", "!" + range + ".mlp"},
        {"*.bias"},
        {"*.weight", "!*norm*.weight"},
        {"*norm*"},
        {"*.mlp"},
        {"*.mlp.gate"},
        {"*.experts"},
        {"*.shared_expert*"},
        {layer, fmt::format("layers.{}.mlp", last)}};
    plan_.frozen = random_.pick(choices);
  }

  void choose_offload() {
    const int layers = plan_.model.num_layers / (plan_.parallel.pp * plan_.parallel.vpp);
    if (random_.one_in(6)) plan_.offload_activations = 1 + number(std::max(1, layers));
    if (plan_.zero_stage == 3 && random_.one_in(4))
      plan_.offload_optimizer = plan_.offload_parameters = true;
  }

  void choose_exchange() {
    if (random_.one_in(6))
      plan_.compression = {.kind = random_.one_in(2) ? program::CompressionKind::Int8
                                                     : program::CompressionKind::TopK,
                           .ratio = 0.1};
    if (random_.one_in(4)) plan_.rank_order = "dp-cp-ep-tp-pp";
    plan_.progress_thread = random_.one_in(12);
    if (plan_.workload.documents.packed && random_.one_in(2))
      plan_.max_tokens_per_rank = plan_.workload.seq_len / plan_.parallel.cp + 128;
  }

  /// Less than a round of sequences away; one replica without any is a violation.
  void choose_uneven_batch() {
    plan_.uneven_batch = true;
    plan_.workload.global_batch_size -= number(static_cast<int>(plan_.sequences_per_round()));
  }

  Plan plan_;
  testing::Random& random_;
};

}  // namespace

Plan random_training_plan(testing::Random& random,
                          const std::vector<program::Precision>& precisions) {
  while (true) {
    Plan plan = Varier(random_plan(random).plan, random).run(precisions);
    if (check(plan).empty()) return plan;
  }
}

}  // namespace meshplan::sim
