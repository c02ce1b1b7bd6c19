// Sources: flash-linear-attention, fla/ops/gated_delta_rule/chunk.py and wy_fast.py,
// kda/chunk_fwd.py and chunk_bwd.py, common/chunk_delta_h.py and chunk_o.py, simple_gla/chunk.py;
// mamba, mamba_ssm/ops/triton/ssd_combined.py.
//
// Letters, of one head: C tokens of a chunk, K and V elements of a key and a value. A product of
// (C, K) and (K, V) for each chunk is 2 K V FLOPs a token, one of (C, C) and (C, V) 2 C V.
#include "prices/attention/linear_attention_kernels.hpp"

#include "core/error.hpp"

namespace meshplan::sim {
namespace {

constexpr double kHalfBytes = 2, kSingleBytes = 4;  // bytes
constexpr double kDecayBlock = 16;  // tokens between which decays are computed pair by pair

/// A kernel's work for each token: of a value head, and of a key head where heads share it.
struct TokenKernel {
  double flops = 0;
  double bytes = 0;
  double key_bytes = 0;
  double key_flops = 0;
  double decays = 0;
  bool chunk_after_chunk = false;
};

struct ChunkSizes {
  double C = 0, K = 0, V = 0;
  double key() const { return kHalfBytes * K; }
  double value() const { return kHalfBytes * V; }
  double state() const { return kHalfBytes * K * V / C; }  // of a chunk, in 16 bits
  double scores() const { return kHalfBytes * C; }
  double decay() const { return kSingleBytes * K; }  // of a token, where channels have their own
};

TokenKernel normalized(const ChunkSizes& s) {
  return {.key_bytes = 2 * s.key()};
}

/// (I + A)^-1 of a triangular A, in fp32 from the kernel before: C^3 / 3 FLOPs.
TokenKernel inverse(const ChunkSizes& s) {
  return {.flops = s.C * s.C / 3, .bytes = kSingleBytes * s.C + s.scores()};
}

/// W = T (beta k) and U = T (beta v), with T the inverse.
TokenKernel delta_values(const ChunkSizes& s) {
  return {.flops = 2 * s.C * (s.K + s.V),
          .bytes = s.scores() + s.key() + 2 * s.value(),
          .key_bytes = s.key()};
}

/// v' = u - w h, and h = decay h + k^T v', chunk after chunk.
TokenKernel delta_states(const ChunkSizes& s) {
  return {.flops = 4 * s.K * s.V,
          .bytes = s.key() + 2 * s.value() + s.state(),
          .key_bytes = s.key(),
          .chunk_after_chunk = true};
}

/// o = q h + (q k^T) v'
TokenKernel chunk_outputs(const ChunkSizes& s) {
  return {.flops = 2 * s.K * s.V + 2 * s.C * (s.K + s.V),
          .bytes = 2 * s.value() + s.state(),
          .key_bytes = 2 * s.key()};
}

std::vector<TokenKernel> gated_delta_forward(const ChunkSizes& s) {
  const TokenKernel sums{.bytes = 2 * kSingleBytes};  // of the decays' logarithms
  const TokenKernel key_products{
      .flops = 2 * s.C * s.K, .bytes = kSingleBytes * s.C, .key_bytes = s.key()};
  return {normalized(s),   normalized(s),   sums, key_products, inverse(s), delta_values(s),
          delta_states(s), chunk_outputs(s)};
}

/// dv = (q k^T)^T do inside a chunk.
TokenKernel local_value_gradient(const ChunkSizes& s) {
  return {.flops = 2 * s.C * (s.K + s.V), .bytes = 2 * s.value(), .key_bytes = 2 * s.key()};
}

/// dv += k dh, and dh = decay dh + q^T do - w^T dv, from the last chunk to the first.
TokenKernel delta_state_gradients(const ChunkSizes& s) {
  return {.flops = 6 * s.K * s.V,
          .bytes = s.key() + 3 * s.value() + s.state(),
          .key_bytes = 2 * s.key(),
          .chunk_after_chunk = true};
}

/// dq = do h^T + dA k, dk = v' dh^T + dA^T q, dw = -dv h^T, dA = do v'^T; and q k^T for the decays.
TokenKernel key_gradients(const ChunkSizes& s) {
  return {.flops = 6 * s.K * s.V + s.C * (6 * s.K + 2 * s.V),
          .bytes = 3 * s.key() + 3 * s.value() + 2 * s.state(),
          .key_bytes = 2 * s.key()};
}

/// With T the inverse: T dw, T du, dT = dw (beta k)^T + du (beta v)^T, dA = -T dT T, and of keys
/// beta k k^T, dA k and dA^T k.
TokenKernel delta_value_gradients(const ChunkSizes& s) {
  return {.flops = s.C * (10 * s.K + 4 * s.V) + 4 * s.C * s.C,
          .bytes = s.scores() + 4 * s.key() + 3 * s.value(),
          .key_bytes = 2 * s.key()};
}

std::vector<TokenKernel> gated_delta_backward(const ChunkSizes& s) {
  const TokenKernel added{.bytes = 3 * s.key()};  // both parts of dk
  const TokenKernel sums{.bytes = 2 * kSingleBytes};
  const TokenKernel norm{.key_bytes = 3 * s.key()};
  return {delta_values(s),
          delta_states(s),
          local_value_gradient(s),
          delta_state_gradients(s),
          key_gradients(s),
          delta_value_gradients(s),
          added,
          sums,
          norm,
          norm};
}

TokenKernel decay_sums(const ChunkSizes& s) {
  return {.bytes = 2 * s.decay()};
}

/// T (beta k) and T (beta v), and keys with their decay.
TokenKernel decayed_delta_values(const ChunkSizes& s) {
  return {.flops = 2 * s.C * (s.K + s.V),
          .bytes = s.scores() + s.decay() + 2 * s.key() + 2 * s.value(),
          .key_bytes = s.key()};
}

TokenKernel decayed_delta_states(const ChunkSizes& s) {
  return {.flops = 4 * s.K * s.V,
          .bytes = 2 * s.key() + 2 * s.value() + s.state(),
          .chunk_after_chunk = true};
}

/// Both q k^T and k k^T, whose decays lie inside the sum over channels: between blocks of tokens
/// they are multiplied to queries and keys, inside a block each pair has its own exponentials.
std::vector<TokenKernel> kimi_delta_forward(const ChunkSizes& s) {
  const TokenKernel scores{.flops = 4 * s.C * s.K,
                           .bytes = s.decay() + kSingleBytes * s.C + s.scores(),
                           .key_bytes = 2 * s.key(),
                           .decays = kDecayBlock * s.K};
  const TokenKernel outputs{.flops = 2 * s.K * s.V + 2 * s.C * s.V,
                            .bytes = s.decay() + s.scores() + 2 * s.value() + s.state(),
                            .key_bytes = s.key()};
  return {normalized(s), normalized(s),           decay_sums(s),           scores,
          inverse(s),    decayed_delta_values(s), decayed_delta_states(s), outputs};
}

std::vector<TokenKernel> kimi_delta_backward(const ChunkSizes& s) {
  // do v'^T and A^T do
  const TokenKernel local{.flops = 4 * s.C * s.V, .bytes = 2 * s.scores() + 3 * s.value()};
  TokenKernel states = delta_state_gradients(s);
  states.bytes += 2 * s.key();  // queries and keys with their decays
  states.key_bytes = 0;
  // dq, dk, dw from states, dA, and through A's inverse
  const TokenKernel keys{
      .flops = 6 * s.K * s.V + s.C * (4 * s.K + 4 * s.V) + 4 * s.C * s.C,
      .bytes = 2 * s.scores() + 3 * s.decay() + kSingleBytes * s.K + 5 * s.value() + 2 * s.state(),
      .key_bytes = 2 * s.key()};
  // dq and dk from the gradients of both scores
  const TokenKernel inside{.flops = 8 * s.C * s.K,
                           .bytes = 2 * kSingleBytes * s.C + 6 * s.decay(),
                           .key_bytes = 2 * s.key(),
                           .decays = 2 * kDecayBlock * s.K};
  const TokenKernel norm{.key_bytes = 3 * s.key()};
  return {decay_sums(s),
          decayed_delta_values(s),
          decayed_delta_states(s),
          local,
          states,
          keys,
          inside,
          decay_sums(s),
          norm,
          norm};
}

std::vector<TokenKernel> simple_forward(const ChunkSizes& s) {
  const TokenKernel states{.flops = 2 * s.K * s.V,
                           .bytes = s.value() + s.state(),
                           .key_bytes = s.key(),
                           .chunk_after_chunk = true};
  return {{.bytes = 2 * kSingleBytes}, states, chunk_outputs(s)};
}

std::vector<TokenKernel> simple_backward(const ChunkSizes& s) {
  const TokenKernel states = simple_forward(s)[1];
  const TokenKernel gradients{.flops = 2 * s.K * s.V,
                              .bytes = s.value() + s.state(),
                              .key_bytes = s.key(),
                              .chunk_after_chunk = true};
  // dv = k dh + (q k^T)^T do
  const TokenKernel values{.flops = 2 * s.K * s.V + 2 * s.C * (s.K + s.V),
                           .bytes = 2 * s.value() + s.state(),
                           .key_bytes = 2 * s.key()};
  const TokenKernel keys{.flops = 4 * s.K * s.V + s.C * (6 * s.K + 2 * s.V),
                         .bytes = 2 * s.key() + 2 * s.value() + 2 * s.state(),
                         .key_bytes = 2 * s.key()};
  return {states, gradients, values, keys, {.bytes = 2 * kSingleBytes}};
}

/// What passes states on does it in fp32, element by element.
TokenKernel passed_states(const ChunkSizes& s) {
  return {.bytes = 2 * 2 * s.state(), .chunk_after_chunk = true};
}

/// C B^T of a group, in fp32.
TokenKernel group_scores(const ChunkSizes& s) {
  return {.key_bytes = 2 * s.key() + kSingleBytes * s.C, .key_flops = 2 * s.C * s.K};
}

std::vector<TokenKernel> mamba_forward(const ChunkSizes& s) {
  const TokenKernel sums{.bytes = 3 * kSingleBytes};  // time steps and decays
  const TokenKernel states{
      .flops = 2 * s.K * s.V, .bytes = s.value() + 2 * s.state(), .key_bytes = s.key()};
  const TokenKernel outputs{.flops = 2 * s.K * s.V + 2 * s.C * s.V,
                            .bytes = 2 * s.value() + s.state(),
                            .key_bytes = s.key() + kSingleBytes * s.C};
  return {sums, states, passed_states(s), group_scores(s), outputs};
}

std::vector<TokenKernel> mamba_backward(const ChunkSizes& s) {
  std::vector<TokenKernel> kernels = mamba_forward(s);
  kernels.pop_back();  // all but the outputs again
  const TokenKernel state_gradients{
      .flops = 2 * s.K * s.V, .bytes = s.value() + 2 * s.state(), .key_bytes = s.key()};
  const TokenKernel inputs{.flops = 2 * s.K * s.V + 2 * s.C * s.V,
                           .bytes = 3 * s.value() + s.state(),
                           .key_bytes = s.key() + kSingleBytes * s.C};
  // dB and dC of all heads, summed over those of a group
  const TokenKernel shared{
      .flops = 2 * s.K * s.V, .bytes = s.value() + s.state(), .key_bytes = 2 * s.key()};
  const TokenKernel scores{
      .flops = 2 * s.C * s.V, .bytes = 2 * s.value(), .key_bytes = kSingleBytes * s.C};
  const TokenKernel group{.key_bytes = kSingleBytes * s.C + 3 * s.key(),
                          .key_flops = 2 * s.C * s.K};
  const TokenKernel decays{
      .flops = 2 * s.C * s.V, .bytes = 2 * s.value(), .key_bytes = kSingleBytes * s.C};
  const TokenKernel sums{.bytes = 3 * kSingleBytes};
  for (const TokenKernel& kernel : {state_gradients, passed_states(s), inputs, shared, shared,
                                    scores, group, group, decays, sums})
    kernels.push_back(kernel);
  return kernels;
}

std::vector<TokenKernel> token_kernels(const LinearAttentionWork& work) {
  const ChunkSizes s{.C = work.chunk, .K = work.key_size, .V = work.value_size};
  switch (work.kind) {
    case LinearAttention::GatedDelta:
      return work.backward ? gated_delta_backward(s) : gated_delta_forward(s);
    case LinearAttention::KimiDelta:
      return work.backward ? kimi_delta_backward(s) : kimi_delta_forward(s);
    case LinearAttention::Mamba2:
      return work.backward ? mamba_backward(s) : mamba_forward(s);
    case LinearAttention::Simple:
      return work.backward ? simple_backward(s) : simple_forward(s);
  }
  throw InvariantError("unknown linear attention");
}

}  // namespace

std::vector<ChunkKernel> chunk_kernels(const LinearAttentionWork& work) {
  const double tokens = work.batch * work.seq;
  std::vector<ChunkKernel> kernels;
  for (const TokenKernel& token : token_kernels(work))
    kernels.push_back(
        {.flops = tokens * (work.value_heads * token.flops + work.key_heads * token.key_flops),
         .bytes = tokens * (work.value_heads * token.bytes + work.key_heads * token.key_bytes),
         .decays = tokens * work.value_heads * token.decays,
         .chunk_after_chunk = token.chunk_after_chunk});
  return kernels;
}

}  // namespace meshplan::sim
