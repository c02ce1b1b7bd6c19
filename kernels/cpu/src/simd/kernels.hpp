// The functions behind KernelTable, for one instruction set.
#pragma once

#include "device/kernel_table.hpp"
#include "simd/vec.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

/// Calls body(null pointer of the element type).
template <class Body>
MESHPLAN_INLINE void with_type(DType dtype, Body body) {
  if (dtype == DType::BF16)
    body(static_cast<Bf16*>(nullptr));
  else if (dtype == DType::F16)
    body(static_cast<F16*>(nullptr));
  else
    body(static_cast<float*>(nullptr));
}

void rms_norm_forward(const RmsNormForward& op, Range rows);
void rms_norm_input_grad(const RmsNormBackward& op, Range rows);
void rms_norm_weight_grad(const RmsNormBackward& op, Range columns);
void layer_norm_forward(const LayerNormForward& op, Range rows);
void layer_norm_input_grad(const LayerNormBackward& op, Range rows);
void layer_norm_weight_grad(const LayerNormBackward& op, Range columns);
void rope(const Rope& op, Range rows);
void activation_forward(const ActivationForward& op, Range elements);
void activation_backward(const ActivationBackward& op, Range elements);
void gated_activation_forward(const GatedActivationForward& op, Range rows);
void gated_activation_backward(const GatedActivationBackward& op, Range rows);
void add(const Add& op, Range elements);
void accumulate(const Accumulate& op, Range elements);
void scale(const Scale& op, Range elements);
void fill(const Fill& op, Range elements);
void convert(const Convert& op, Range elements);
void bias_grad(const LinearWeightGrad& op, Range columns);
void embedding_forward(const EmbeddingForward& op, Range rows);
void embedding_backward(const EmbeddingBackward& op, Range columns);
void position_embedding_forward(const PositionEmbeddingForward& op, Range rows);
void position_embedding_backward(const PositionEmbeddingBackward& op, Range columns);
void cross_entropy_local(const CrossEntropyLocal& op, Range rows);
void cross_entropy_backward(const CrossEntropyBackward& op, Range rows);
void adam(const AdamStep& op, Range elements);
void sgd(const SgdStep& op, Range elements);
double sum_of_squares(const float* x, int64_t count);
void random_normal(const RandomNormal& op, Range rows);
void dispatch_forward(const DispatchForward& op, Range rows);
void combine_forward(const CombineForward& op, Range tokens);
void combine_backward(const CombineBackward& op, Range tokens);
void latent_heads_forward(const LatentHeadsForward& op, Range tokens);
void latent_heads_backward(const LatentHeadsBackward& op, Range tokens);
void sigmoid_gate_forward(const SigmoidGateForward& op, Range tokens);
void sigmoid_gate_backward(const SigmoidGateBackward& op, Range tokens);
void short_convolution_forward(const ShortConvolutionForward& op, Range tokens);
void short_convolution_backward(const ShortConvolutionBackward& op, Range channels);
void gated_rms_norm_forward(const GatedRmsNormForward& op, Range rows);
void gated_rms_norm_input_grad(const GatedRmsNormBackward& op, Range rows);
void gated_rms_norm_weight_grad(const GatedRmsNormBackward& op, Range columns);
void attention_forward(const AttentionForward& op, Range pairs, float* scratch);
void attention_backward(const AttentionBackward& op, Range pairs, float* scratch);
void gated_delta_forward(const GatedDeltaForward& op, Range pairs, float* scratch);
void gated_delta_backward(const GatedDeltaBackward& op, Range pairs, float* scratch, float* sums);
void ssd_forward(const SsdForward& op, Range units, float* scratch);
void ssd_backward(const SsdBackward& op, Range units, float* scratch, const SsdSums& sums);
void ssd_bc_grads(const SsdBackward& op, Range rows, const SsdSums& sums);
void sparse_attention_forward(const SparseAttentionForward& op, Range tokens, float* scratch);
void sparse_attention_backward(const SparseAttentionBackward& op, Range pairs, float* scratch);
void indexer_loss_forward(const IndexerLossForward& op, Range tokens, float* scratch);
void indexer_loss_query_grad(const IndexerLossBackward& op, Range tokens, float* scratch,
                             float* score_grads);
void indexer_loss_key_grad(const IndexerLossBackward& op, Range blocks, float* scratch,
                           const float* score_grads);
void pack_index_keys(const Indexer& indexer, int64_t sequence, float* scratch);
void select_keys(const SelectKeysForward& op, int64_t token, float* scratch);

}  // namespace meshplan::kernels::MESHPLAN_ISA
