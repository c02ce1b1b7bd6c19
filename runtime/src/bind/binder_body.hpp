// The operator binder's body: operator_binding.cpp sorts operations by kind, bind_*.cpp bind them.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "bind/operator_binding.hpp"

namespace meshplan::runtime {

class OperatorBinder::Body {
 public:
  Body(kernels::Backend& backend, const program::Program& program, RankPlace place, Resolve resolve,
       const float* gradient_scale, RowsArrive rows_arrive);
  ~Body();
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  const program::Program& program() const { return program_; }
  std::function<void()> bind(const program::OperationInstance& instance,
                             const models::SymbolValues& sizes);
  std::function<void()> bind_step(const program::StepOp& step, const FlatMemory& memory);
  const std::vector<std::int32_t>& exchanged_rows(const program::OperationInstance& instance,
                                                  program::Group group) const {
    return exchanged_rows_[exchange_of(instance, group)];
  }
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  struct Operands;
  struct RopeTable {
    double base = 0.0;
    int size = 0;
    std::optional<models::RopeScaling> scaling;
    void* memory = nullptr;
  };

  std::function<void()> ready(const kernels::Operation& call);
  std::function<void()> bind_embedding(const Operands& o);
  std::function<void()> bind_position_embedding(const Operands& o);
  std::function<void()> bind_norm(const Operands& o);
  std::function<void()> bind_head_norm(const Operands& o);
  kernels::HeadRotation head_rotation(const Operands& o);
  std::function<void()> bind_layer_norm(const Operands& o);
  std::function<void()> bind_linear(const Operands& o);
  std::function<void()> bind_float8(const Operands& o);
  std::function<void()> bind_bias(const Operands& o);
  /// Of the heads here, where this rank has whole sequences of them.
  kernels::AttentionShape attention_shape(const Operands& o) const;
  std::function<void()> bind_attention(const Operands& o);
  std::function<void()> bind_sinks_gradient(const Operands& o);
  /// Sinks of the heads that this rank attends with, or null.
  const void* own_sinks(const Operands& o) const;
  std::function<void()> bind_gathered_attention(const Operands& o);
  std::function<void()> bind_ring_attention(const Operands& o);
  std::function<void()> bind_document_attention(const Operands& o, std::int64_t keys);
  std::function<void()> bind_merge(const Operands& o);
  std::function<void()> bind_convert(const Operands& o);
  std::function<void()> bind_key_values(const Operands& o);
  std::function<void()> bind_chunk_order(const Operands& o);
  std::function<void()> bind_rope(const Operands& o);
  std::function<void()> bind_latent_heads(const Operands& o);
  std::function<void()> bind_activation(const Operands& o);
  std::function<void()> bind_gated_activation(const Operands& o);
  std::function<void()> bind_sigmoid_gate(const Operands& o);
  std::function<void()> bind_pointwise(const Operands& o);
  std::function<void()> bind_loss(const Operands& o);
  std::function<void()> bind_experts(const Operands& o);
  std::function<void()> bind_router(const Operands& o);
  std::function<void()> bind_router_forward(const Operands& o);
  std::function<void()> bind_router_input_grad(const Operands& o);
  std::function<void()> bind_router_load(const Operands& o);
  std::function<void()> bind_router_losses(const Operands& o);
  std::function<void()> bind_limit_choices(const Operands& o);
  /// Sequences of the global batch in the operation's micro-batch, and of the `tokens` that this
  /// rank has of it those of empty sequences: the last ones, which no loss counts.
  std::int64_t real_sequences(const Operands& o) const;
  std::int64_t empty_tokens(const Operands& o, std::int64_t tokens) const;
  kernels::SequenceCounts sequence_counts(const Operands& o, std::size_t load,
                                          std::int64_t tokens) const;
  std::function<void()> bind_dispatch_plan(const Operands& o);
  std::function<void()> bind_exchange_sizes(const Operands& o);
  std::function<void()> bind_dispatch(const Operands& o);
  std::function<void()> bind_regroup(const Operands& o);
  std::function<void()> bind_grouped_linear(const Operands& o);
  std::function<void()> bind_grouped_bias(const Operands& o);
  std::function<void()> bind_combine(const Operands& o);
  template <class Call, class SetRows>
  std::function<void()> of_rows(const Operands& o, std::size_t offsets, Call call,
                                SetRows set_rows);
  /// The visit of a layer and micro-batch.
  std::size_t visit_of(const program::OperationInstance& instance) const;
  /// The exchange of a visit between the ranks of a group: between nodes, or to the experts.
  std::size_t exchange_of(const program::OperationInstance& instance, program::Group group) const {
    return 2 * visit_of(instance) + (group == program::Group::EpAcross ? 1 : 0);
  }
  void note_rows(const program::OperationInstance& instance, program::Group group);
  std::function<void()> bind_node_choices(const Operands& o);
  std::function<void()> bind_node_routing(const Operands& o);
  std::function<void()> bind_sum_nodes(const Operands& o);
  std::function<void()> bind_pack_rows(const Operands& o);
  std::function<void()> bind_unpack_rows(const Operands& o);
  template <class Call>
  std::function<void()> of_tokens(const Operands& o, const Call& call);
  template <class Call>
  std::function<void()> grouped(Call call, const std::int32_t* offsets);
  std::function<void()> bind_parts(const Operands& o, bool divide);
  std::function<void()> bind_pool(const Operands& o);
  std::function<void()> bind_short_convolution(const Operands& o);
  std::function<void()> bind_gated_norm(const Operands& o);
  std::function<void()> bind_gated_delta(const Operands& o);
  std::function<void()> bind_state_space(const Operands& o);
  kernels::Indexer indexer_of(const Operands& o) const;
  std::function<void()> bind_select_keys(const Operands& o);
  std::function<void()> bind_sparse_attention(const Operands& o);
  std::function<void()> bind_indexer_loss(const Operands& o);
  std::function<void()> bind_layout(const Operands& o);
  std::function<void()> bind_update(const program::StepOp& step, const FlatMemory& memory);
  /// Cosines and sines of all positions, made once for each rotation.
  const float* rope_table(const models::OpAttributes& attributes);
  /// Tokens of a whole sequence, and of this rank's part of one.
  std::int64_t seq_len() const { return program_.plan.workload.seq_len; }
  std::int64_t local_seq_len() const { return program_.sizes.tokens / program_.sizes.sequences; }
  std::function<void()> bind_document_order(const Operands& o);
  kernels::RowPositions row_positions(const Operands& o, std::int64_t first_row = 0) const;

  kernels::Backend& backend_;
  const program::Program& program_;
  RankPlace place_;
  Resolve resolve_;
  const float* gradient_scale_;
  RowsArrive rows_arrive_;
  std::vector<RopeTable> rope_tables_;
  std::vector<std::vector<std::int32_t>> exchanged_rows_;  // two for each visit
  std::vector<std::int64_t> routed_rows_;  // by visit: those of a balanced router, then what came
  std::vector<std::int64_t> forwarded_tokens_;  // by visit: those that are expected, then what came
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace meshplan::runtime
