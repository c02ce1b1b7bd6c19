// The walk behind layer_work(): one operation of the unsharded graph after another, each adding
// what a rank does of it. What an operation adds stands by topic in layer_products.cpp,
// layer_attention.cpp, layer_mixers.cpp, layer_experts.cpp and layer_recompute.cpp.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "core/index.hpp"
#include "prices/element_bytes.hpp"
#include "stacks/layer/layer_work.hpp"

namespace meshplan::sim {

constexpr double kStatistic = 4;  // an fp32 element

class LayerWalk {
 public:
  LayerWalk(const models::LayerGraph& layer, const TrainingRun& run,
            const ExecutionProfile& profile, const FrozenLayer& frozen);
  LayerWork run(bool recomputed);

 private:
  using Op = models::Op;
  using TensorId = models::TensorId;
  using Collective = program::Collective;
  using Group = program::Group;

  /// How a value is spread over the tp group.
  enum class Place {
    Residual,       // all features; tokens sharded under sequence parallelism, else replicated
    Sharded,        // all tokens, features over tp
    Expert,         // routed tokens, all features
    ExpertSharded,  // routed tokens, features over etp
  };

  // ---- sizes, local to the rank
  double rows(Place place) const;
  double width(TensorId id, Place place) const;
  double elements(TensorId id) const;
  double parameter_elements(TensorId id) const;
  bool is_low_precision() const;
  /// Of an element of a product's operand, where that is low.
  double low_bytes() const;
  double dropout() const;

  // ---- what an operation adds
  void begin();
  WorkItem& forward(WorkItem item) { return work_.forward.emplace_back(item); }
  /// What leads to no gradient is not done.
  WorkItem& backward(WorkItem item) {
    return (is_differentiated_ ? backward_ops_.back() : left_out_).emplace_back(item);
  }
  /// Bytes from forward to backward.
  void keep(double bytes) {
    if (is_differentiated_) work_.saved_bytes += bytes;
  }
  void streams(const OperationHabit& habit, double n);
  static WorkItem tp(Collective collective, double bytes, bool beside = true);
  /// A gather or scatter of sequence parallelism, with what the stack copies around it.
  /// @param full  bytes of the whole
  WorkItem sequence(Collective collective, double full, bool beside = true) const;
  bool adds_input_gradients(const Op& op) const;
  static WorkItem exchange(Collective collective, Group group, double bytes);
  void save(TensorId id, double bytes_per_element);

  // ---- operations (layer_work.cpp)
  void walk(const Op& op);
  /// Which gradients the operation has, and which its output.
  void trace_gradients(const Op& op);
  void residual_add(const Op& op);
  bool ends_product(const Op& op) const;
  bool follows_head_norm(const Op& op) const;
  void count_parameters(const Op& op);
  void count_matrices(const Op& op, TensorId id);
  void embedding(const Op& op);
  void cross_entropy(const Op& op);

  // ---- products (layer_products.cpp)
  void product(double count, double m, double n, double k, bool low_precision,
               const OperationHabit& habit, bool routed = false);
  /// Inputs and output gradients become FP8 next to the product; 0 of them: in another kernel.
  /// @param pieces  tensors with scales of their own: the experts of a rank. With one scale per
  /// tensor they are cast by one kernel where products are grouped (Transformer Engine's
  /// nvte_multi_cast_transpose), else one by one.
  /// Of frozen weights that are kept in fewer bits: widened before each product that reads them.
  void widen_weights(double elements);
  void casts(double inputs, double outputs, double pieces = 1, bool routed = false);
  /// Of a product beside which tensor parallelism gathers the input, or the output's gradient.
  void casts_of_linear(const Op& op, double inputs, double outputs, bool gathers);
  bool casts_before_gather() const;
  void linear(const Op& op, Place in);
  bool is_head(const Op& op) const { return op.split == models::Split::Vocab; }
  /// Megatron pads the vocabulary to a multiple of 128 tp.
  double padded_vocabulary(double v) const;
  void gather_input(const Op& op, TensorId input, bool low);
  WorkItem partial_sums(double bytes) const;
  void reduce_output(double elements_full, bool low);
  void save_product_input(TensorId input, bool low);

  // ---- attention (layer_attention.cpp)
  void attention(const Op& op);
  /// Keys and values travel around the cp ring, their gradients too (Liu et al. 2023, Ring
  /// Attention, section 3), or are gathered (Llama Team 2024, Llama 3, section 3.3.2); or heads are
  /// exchanged for tokens (Jacobs et al. 2023, Ulysses).
  void exchange_context(const Op& op, double heads, double head, double value);
  double local_kv_heads(const Op& op, double heads) const;
  bool stores_score_gradient(const Op& op, double head, double value) const;
  void store_score_gradient(const Op& op, double heads, double seq);
  /// Scores in memory: 5 a s^2 b bytes are kept (Korthikanti et al. 2022, section 4.1).
  void scores(double heads, double head, double value, double seq);

  double keys_per_query(const Op& op) const;

  // ---- mixers besides attention (layer_mixers.cpp)
  void select_keys(const Op& op);
  void grouped_output(const Op& op);
  void short_convolution(const Op& op);
  void recurrence(const Op& op);
  void gated(const Op& op);
  void stream_mix(const Op& op);
  void save_inputs(const Op& op);

  // ---- experts (layer_experts.cpp)
  void router(const Op& op);
  void grouped_linear(const Op& op);
  /// Tokens to the ranks of their experts, or back. A fused dispatcher sends one copy to a rank
  /// (and across the network to a node) that holds several of a token's experts.
  void pad_rows(double width);
  WorkItem to_experts(double d, bool combines) const;
  WorkItem gathered_by_experts(double d, bool gathers) const;
  /// To the experts' ranks, or back.
  void exchange_tokens(double d, bool dispatches);
  void dispatch(const Op& op);
  void combine(const Op& op);

  // ---- recompute (layer_recompute.cpp)
  void count_saved(bool recomputed);
  /// Of what modules make and use up again: what they hand on is kept, but for the few whose
  /// outputs are made again as well.
  double module_bytes() const;
  void recompute_modules();
  /// Every second product's output, and attention's.
  bool only_added(TensorId id) const;
  double kept_product_bytes() const;
  /// Backward reads the input of a layer's last product, but nothing after it; what is gathered to
  /// recompute serves the weight gradients' gathers, too.
  void keep_what_backward_reads(std::vector<WorkItem>& items) const;
  void add_recompute();

  const models::LayerGraph& layer_;
  const TrainingRun& run_;
  const ExecutionProfile& profile_;
  std::vector<Place> places_;       // of each tensor
  std::vector<bool> frozen_;        // each tensor, if it is a parameter
  std::vector<bool> has_gradient_;  // each tensor, if it is an activation
  bool is_differentiated_ = true;   // the operation that is walked now: its output has a gradient
  bool trains_weight_ = true;       // of its product
  bool needs_input_gradient_ = true;
  std::vector<WorkItem> left_out_;
  double tokens_ = 0;
  double tokens_per_rank_ = 0;
  double routed_ = 0;
  LayerWork work_;
  std::vector<std::vector<WorkItem>> backward_ops_;  // by operation, in forward order
  std::size_t core_begin_ = 0, core_end_ = 0;        // of attention's core in work_.forward
  double core_saved_ = 0;
  std::map<TensorId, double> saved_;  // bytes
  std::vector<std::size_t> end_of_;   // of each operation in work_.forward
  std::set<TensorId> gathered_;
};

}  // namespace meshplan::sim
