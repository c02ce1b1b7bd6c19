// Linear attention computed in chunks of tokens, and the short convolution before it: what their
// kernels compute and move, and their seconds on a device. 16-bit operands, fp32 decays.
#pragma once

#include <string>

#include "sim/clusters/cluster.hpp"
#include "sim/prices/operator_constants.hpp"

namespace meshplan::sim {

/// How the state decays and is updated.
enum class LinearAttention {
  GatedDelta,  // Gated DeltaNet (Yang et al. 2024): delta rule, one decay a head
  KimiDelta,   // Kimi Delta Attention (Kimi Team 2025): delta rule, a decay a channel of the key
  Mamba2,      // state space duality (Dao and Gu 2024): one decay a head, no delta rule
  Simple,      // one decay a head, no delta rule (simple GLA, lightning attention)
};

/// All heads of all sequences.
struct LinearAttentionWork {
  LinearAttention kind = LinearAttention::GatedDelta;
  double batch = 0, seq = 0;
  double key_heads = 0, key_size = 0;  // queries have as many; of Mamba 2 groups and state size
  double value_heads = 0, value_size = 0;
  double chunk = 64;  // tokens; flash-linear-attention's
  bool backward = false;
  bool operator==(const LinearAttentionWork&) const = default;
};

/// FLOPs of the chunked algorithm's products, causal halves counted whole. With K and V elements of
/// a key and a value head and C tokens a chunk, for each token and value head:
///   delta rule      6 K V + C (6 K + 4 V) + C^2 / 3
///     its backward  16 K V + C (20 K + 10 V) + 4 C^2, Kimi's 16 K V + C (14 K + 10 V) + 4 C^2
///   simple          4 K V + C (2 K + 2 V)
///     its backward  10 K V + C (8 K + 4 V)
///   Mamba 2         4 K V + 2 C V, and 2 C K for each token and group
///     its backward  10 K V + 6 C V, and 6 C K for each token and group
/// Backward computes the chunks' states again instead of keeping them.
/// Source: Yang et al. 2024, Parallelizing Linear Transformers with the Delta Rule, section 3.2
/// (the WY form and its inverse); Yang et al. 2024, Gated Delta Networks, section 3.3; Dao and Gu
/// 2024, section 6; kernel by kernel in linear_attention_kernels.cpp
double linear_attention_flops(const LinearAttentionWork& work);
/// Bytes that its kernels read and write, each operand of a kernel once.
double linear_attention_bytes(const LinearAttentionWork& work);
/// Kernels that it launches.
int linear_attention_kernels(const LinearAttentionWork& work);

/// Seconds, with the starts of its kernels. Forward is corrected by timed shapes of the device;
/// backward, and Mamba 2's and simple attention, which were not timed, are the formula.
/// @param cluster  with operator or step speeds
double linear_attention_seconds(const LinearAttentionWork& work, const Cluster& cluster,
                                const OperatorConstants& constants = operator_constants());

/// Causal convolution of each channel over the last few tokens, with bias and SiLU.
struct ShortConvolutionWork {
  LinearAttention kind = LinearAttention::GatedDelta;  // before which it stands
  double batch = 0, seq = 0;
  double channels = 0;  // of all kernels together
  double taps = 4;
  int kernels = 1;  // Kimi's: 3, queries, keys and values apart
  bool backward = false;
  bool operator==(const ShortConvolutionWork&) const = default;
};

/// Two for each tap of an element; backward computes the convolution again, the input's gradient
/// and the weights': three times as many.
double short_convolution_flops(const ShortConvolutionWork& work);
/// Forward reads and writes each element, backward reads input and output gradient and writes one.
double short_convolution_bytes(const ShortConvolutionWork& work);
/// Seconds, with the starts of its kernels; forward is corrected by timed shapes of the device.
double short_convolution_seconds(const ShortConvolutionWork& work, const Cluster& cluster,
                                 const OperatorConstants& constants = operator_constants());

/// The group of the tables' rows: "gdn chunks", "kda convolution".
std::string group_of(const LinearAttentionWork& work);
std::string group_of(const ShortConvolutionWork& work);

}  // namespace meshplan::sim
