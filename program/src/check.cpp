#include <fmt/format.h>
#include <numeric>

#include "core/error.hpp"
#include "program/plan.hpp"

namespace meshplan::program {
namespace {

// Collects broken rules; the ids are those of docs/rules.md.
class Checker {
 public:
  explicit Checker(const Plan& plan) : plan_(plan), model_(plan.model), parallel_(plan.parallel) {}

  std::vector<Violation> run() {
    degrees();
    if (!violations_.empty()) return std::move(violations_);  // the rest divides by them
    not_lowered();
    tensor_parallel();
    pipeline();
    batch();
    return std::move(violations_);
  }

 private:
  void fail(std::string rule, std::string message) {
    violations_.push_back({std::move(rule), std::move(message)});
  }

  void degrees() {
    const std::pair<const char*, int> all[] = {
        {"tp", parallel_.tp},   {"cp", parallel_.cp},
        {"pp", parallel_.pp},   {"vpp", parallel_.vpp},
        {"dp", parallel_.dp},   {"ep", parallel_.ep},
        {"etp", parallel_.etp}, {"micro_batch_size", plan_.micro_batch_size}};
    for (const auto& [name, degree] : all)
      if (degree < 1) fail("positive", fmt::format("{} = {} must be at least 1", name, degree));
    if (plan_.workload.seq_len < 1)
      fail("positive", fmt::format("seq_len = {} must be at least 1", plan_.workload.seq_len));
    if (plan_.workload.global_batch_size < 1)
      fail("positive", fmt::format("global_batch_size = {} must be at least 1",
                                   plan_.workload.global_batch_size));
  }

  void refuse(bool uses, std::string_view what) {
    if (uses)
      fail("not-lowered", fmt::format("{}: {} is not lowered by this version", model_.name, what));
  }

  /// What the graph can express and this version cannot run or price yet.
  void not_lowered() {
    refuse(model_.moe.has_value(), "a mixture of experts (moe)");
    refuse(model_.mla.has_value(), "multi-head latent attention (mla)");
    refuse(model_.linear_attention.has_value(), "linear attention");
    refuse(model_.mtp_layers > 0, "multi-token prediction (mtp_layers)");
    refuse(model_.qk_norm, "a norm of query and key heads (qk_norm)");
    refuse(model_.attention_sinks, "attention_sinks");
    refuse(model_.attention_output_gate, "attention_output_gate");
    refuse(model_.attention_softcap.has_value(), "attention_softcap");
    refuse(model_.logit_softcap.has_value(), "logit_softcap");
    refuse(model_.norm_placement == models::NormPlacement::Post, "norm_placement 'post'");
    refuse(model_.num_classes > 0, "a classification head (num_classes)");
    refuse(model_.embedding_norm, "embedding_norm");
    refuse(model_.activation == models::ActivationKind::ClampedSilu, "activation 'clamped_silu'");
    const std::pair<const char*, int> axes[] = {
        {"cp", parallel_.cp}, {"vpp", parallel_.vpp}, {"ep", parallel_.ep}, {"etp", parallel_.etp}};
    for (const auto& [name, degree] : axes)
      if (degree > 1)
        fail("not-lowered",
             fmt::format("{} = {}: this version lowers tp, sp, pp and dp only; use {} = 1", name,
                         degree, name));
    if (plan_.workload.precision == DType::F16)
      fail("not-lowered",
           "precision fp16 needs loss scaling, which this version lacks; use fp32 or bf16");
  }

  void divides(std::string_view rule, std::string_view name, std::int64_t number) {
    if (number % parallel_.tp == 0) return;
    fail(std::string(rule),
         fmt::format("{} ({}) is not divisible by tp ({}); nearest tp: {}", name, number,
                     parallel_.tp, nearest_divisor(static_cast<int>(number), parallel_.tp)));
  }

  void tensor_parallel() {
    divides("heads", "num_heads", model_.num_heads);
    if (model_.num_kv_heads % parallel_.tp != 0)
      fail("kv-heads",
           fmt::format(
               "num_kv_heads ({}) is not divisible by tp ({}), and replicated key/value heads are "
               "not lowered; nearest tp: {}",
               model_.num_kv_heads, parallel_.tp,
               nearest_divisor(model_.num_kv_heads, parallel_.tp)));
    if (!model_.moe) divides("ffn", "ffn_size", model_.ffn_size);
    if (parallel_.sp && parallel_.tp == 1)
      fail("sp",
           "sp needs tp > 1: it shards the tokens over the tp group; use tp >= 2 or sp = false");
    const std::int64_t tokens = plan_.tokens_per_microbatch();
    if (parallel_.sp && tokens % parallel_.tp != 0)
      fail("sp", fmt::format(
                     "micro_batch_size({}) * seq_len({}) = {} tokens are not divisible by tp ({}), "
                     "which sp needs",
                     plan_.micro_batch_size, plan_.workload.seq_len, tokens, parallel_.tp));
    if (model_.max_positions > 0 && model_.positions == models::Positions::Learned &&
        plan_.workload.seq_len > model_.max_positions)
      fail("positions",
           fmt::format("seq_len ({}) exceeds max_positions ({}) of the learned positions",
                       plan_.workload.seq_len, model_.max_positions));
  }

  void pipeline() {
    if (parallel_.pp > model_.num_layers && plan_.layers_per_stage.empty()) {
      fail("stages",
           fmt::format(
               "pp ({}) exceeds num_layers ({}): a stage would hold no layer; nearest pp: {}",
               parallel_.pp, model_.num_layers, model_.num_layers));
      return;
    }
    if (plan_.layers_per_stage.empty()) return;
    const auto& layers = plan_.layers_per_stage;
    if (static_cast<int>(layers.size()) != parallel_.pp)
      fail("stages", fmt::format("layers_per_stage has {} entries, but pp is {}", layers.size(),
                                 parallel_.pp));
    const int sum = std::accumulate(layers.begin(), layers.end(), 0);
    if (sum != model_.num_layers)
      fail("stages", fmt::format("layers_per_stage sums to {}, but the model has {} layers", sum,
                                 model_.num_layers));
    for (std::size_t stage = 0; stage < layers.size(); ++stage)
      if (layers[stage] < 1)
        fail("stages",
             fmt::format("layers_per_stage[{}] = {}: every stage needs at least one layer", stage,
                         layers[stage]));
  }

  void batch() {
    const std::int64_t replica = static_cast<std::int64_t>(plan_.micro_batch_size) * parallel_.dp;
    const std::int64_t global = plan_.workload.global_batch_size;
    if (global % replica != 0)
      fail("batch",
           fmt::format("global_batch_size ({}) is not divisible by micro_batch_size({}) * dp({}) = "
                       "{}; nearest: {}",
                       global, plan_.micro_batch_size, parallel_.dp, replica,
                       std::max<std::int64_t>(1, (global + replica / 2) / replica) * replica));
  }

  const Plan& plan_;
  const models::ModelSpec& model_;
  const ParallelConfig& parallel_;
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> check(const Plan& plan) {
  return Checker(plan).run();
}

}  // namespace meshplan::program
