// What the instruction-set specific files offer. Each function does a range of the operation's
// independent parts (rows, columns or elements); threads get disjoint ranges.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/indexer.hpp"
#include "kernels/attention/latent_heads.hpp"
#include "kernels/attention/sparse_attention.hpp"
#include "kernels/elementwise/accumulate.hpp"
#include "kernels/elementwise/activation.hpp"
#include "kernels/elementwise/add.hpp"
#include "kernels/elementwise/convert.hpp"
#include "kernels/elementwise/fill.hpp"
#include "kernels/elementwise/gated_activation.hpp"
#include "kernels/elementwise/scale.hpp"
#include "kernels/elementwise/sigmoid_gate.hpp"
#include "kernels/embeddings/embedding.hpp"
#include "kernels/embeddings/position_embedding.hpp"
#include "kernels/embeddings/rope.hpp"
#include "kernels/experts/expert_dispatch.hpp"
#include "kernels/mixers/gated_delta.hpp"
#include "kernels/mixers/ssd.hpp"
#include "kernels/mixers/gated_rms_norm.hpp"
#include "kernels/mixers/short_convolution.hpp"
#include "kernels/norms/layer_norm.hpp"
#include "kernels/norms/rms_norm.hpp"
#include "kernels/products/linear.hpp"
#include "kernels/training/cross_entropy.hpp"
#include "kernels/training/optimizer.hpp"
#include "kernels/training/random_normal.hpp"

namespace meshplan::kernels {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct SsdSums;  // mixers/ssd_layout.hpp

constexpr std::int64_t kNormBlock = 16384;  // elements of one fp64 partial sum of SquaredNorm

struct KernelTable {
  // rows
  void (*rms_norm_forward)(const RmsNormForward&, Range);
  void (*rms_norm_input_grad)(const RmsNormBackward&, Range);
  void (*layer_norm_forward)(const LayerNormForward&, Range);
  void (*layer_norm_input_grad)(const LayerNormBackward&, Range);
  void (*rope)(const Rope&, Range);
  void (*gated_activation_forward)(const GatedActivationForward&, Range);
  void (*gated_activation_backward)(const GatedActivationBackward&, Range);
  void (*embedding_forward)(const EmbeddingForward&, Range);
  void (*position_embedding_forward)(const PositionEmbeddingForward&, Range);
  void (*cross_entropy_local)(const CrossEntropyLocal&, Range);
  void (*cross_entropy_backward)(const CrossEntropyBackward&, Range);
  void (*random_normal)(const RandomNormal&, Range);
  void (*dispatch_forward)(const DispatchForward&, Range);
  void (*combine_forward)(const CombineForward&, Range);
  void (*combine_backward)(const CombineBackward&, Range);
  void (*latent_heads_forward)(const LatentHeadsForward&, Range);
  void (*latent_heads_backward)(const LatentHeadsBackward&, Range);
  void (*sigmoid_gate_forward)(const SigmoidGateForward&, Range);
  void (*sigmoid_gate_backward)(const SigmoidGateBackward&, Range);
  void (*ssd_bc_grads)(const SsdBackward&, Range, const SsdSums&);
  void (*short_convolution_forward)(const ShortConvolutionForward&, Range);
  void (*gated_rms_norm_forward)(const GatedRmsNormForward&, Range);
  void (*gated_rms_norm_input_grad)(const GatedRmsNormBackward&, Range);

  // columns
  void (*rms_norm_weight_grad)(const RmsNormBackward&, Range);
  void (*layer_norm_weight_grad)(const LayerNormBackward&, Range);
  void (*bias_grad)(const LinearWeightGrad&, Range);
  void (*embedding_backward)(const EmbeddingBackward&, Range);
  void (*position_embedding_backward)(const PositionEmbeddingBackward&, Range);
  void (*short_convolution_backward)(const ShortConvolutionBackward&, Range);
  void (*gated_rms_norm_weight_grad)(const GatedRmsNormBackward&, Range);

  // elements
  void (*activation_forward)(const ActivationForward&, Range);
  void (*activation_backward)(const ActivationBackward&, Range);
  void (*add)(const Add&, Range);
  void (*accumulate)(const Accumulate&, Range);
  void (*scale)(const Scale&, Range);
  void (*fill)(const Fill&, Range);
  void (*convert)(const Convert&, Range);
  void (*adam)(const AdamStep&, Range);
  void (*sgd)(const SgdStep&, Range);
  double (*sum_of_squares)(const float* x, std::int64_t count);

  // (sequence, key head) pairs; `scratch` is one thread's
  void (*attention_forward)(const AttentionForward&, Range, float* scratch);
  void (*attention_backward)(const AttentionBackward&, Range, float* scratch);
  void (*gated_delta_forward)(const GatedDeltaForward&, Range, float* scratch);
  /// @param sums  (B, Hv, 2): of the gradients of dt_bias and a_log over a sequence
  void (*gated_delta_backward)(const GatedDeltaBackward&, Range, float* scratch, float* sums);

  // units (mixers/ssd_layout.hpp); `scratch` is one thread's
  void (*ssd_forward)(const SsdForward&, Range, float* scratch);
  void (*ssd_backward)(const SsdBackward&, Range, float* scratch, const SsdSums&);
  void (*sparse_attention_backward)(const SparseAttentionBackward&, Range, float* scratch);

  // tokens, with one thread's scratch
  void (*sparse_attention_forward)(const SparseAttentionForward&, Range, float* scratch);
  void (*indexer_loss_forward)(const IndexerLossForward&, Range, float* scratch);
  void (*indexer_loss_query_grad)(const IndexerLossBackward&, Range, float* scratch,
                                  float* score_grads);

  // blocks of kGradientKeys keys, those of each sequence by themselves
  void (*indexer_loss_key_grad)(const IndexerLossBackward&, Range, float* scratch,
                                const float* score_grads);

  // one token, whose sequence's keys have been packed into the scratch (SelectKeysLayout)
  void (*pack_index_keys)(const Indexer&, std::int64_t sequence, float* scratch);
  void (*select_keys)(const SelectKeysForward&, std::int64_t token, float* scratch);
};

namespace sse4 {
const KernelTable& table();
}
namespace avx2 {
const KernelTable& table();
}
namespace avx512 {
const KernelTable& table();
}

}  // namespace meshplan::kernels
