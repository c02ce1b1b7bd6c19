// The gated delta rule's passes over chunks: what they exchange through scratch. A slot is a chunk
// of one value head of one sequence, (B, Hv, N) of them; what follows is of one slot.
#pragma once

#include "device/context.hpp"
#include "kernels/mixers/gated_delta.hpp"

namespace meshplan::kernels::cuda {

/// What forward and backward read.
struct DeltaInputs {
  GatedDeltaShape shape;
  DType dtype = DType::F32;
  const void* qkv = nullptr;
  std::int64_t qkv_stride = 0;
  const void* ba = nullptr;
  std::int64_t ba_stride = 0;
  DType decay_dtype = DType::F32;
  const void* dt_bias = nullptr;
  const void* a_log = nullptr;
  const std::int32_t* positions = nullptr;
};

template <class Op>
DeltaInputs delta_inputs(const Op& op) {
  return {op.shape,     op.dtype,       op.qkv,     op.qkv_stride, op.ba,
          op.ba_stride, op.decay_dtype, op.dt_bias, op.a_log,      op.positions};
}

/// Numbers of each token of a slot.
enum class OfToken {
  Beta,
  Decay,      // g, the logarithm
  DecayHigh,  // sum of g from the chunk's begin, and what fp32 drops of it
  DecayLow,
  Begin,      // first row of its document in the chunk
  FromBegin,  // decay from the chunk's begin, 0 in other documents
  ToEnd,      // decay to the chunk's end, 0 in other documents
  QueryNorm,  // what its query and key are multiplied by
  KeyNorm,
  Products,  // backward: r u
  Reads,     // backward: gradients of the logarithms of FromBegin and ToEnd
  Writes,
  StateDecay,  // first token: decay of the state over the chunk
  Count
};

/// Null where a pass has no use for it.
struct DeltaScratch {
  float* of_tokens = nullptr;  // (OfToken::Count, C)
  float* inverse = nullptr;    // (C, C): (I + L)^-1; backward: then gradients of k k^T inside L
  float* scores = nullptr;     // (C, C): decays q k^T; backward: then gradients of q k^T
  float* rhs = nullptr;        // (C, Ev): beta (v - decay S^T k); backward: then gradients of u
  float* updates = nullptr;    // (C, Ev): u
  float* states = nullptr;     // (Ek, Ev), where the operation keeps none
  // backward only
  float* update_grads = nullptr;  // (C, Ev): of rhs
  float* state_grads = nullptr;   // (Ek, Ev), at the chunk's end
  float* state_sums = nullptr;    // (tiles of Ev): parts of the gradient of StateDecay's logarithm
  float* pairs = nullptr;         // (C, C): gradients of the logarithms of decays between tokens
  float* query_grads = nullptr;   // (C, Ek): a head's part
  float* key_read_grads = nullptr;   // (C, Ek): of the key that reads the state
  float* key_write_grads = nullptr;  // (C, Ek): of the key that is written
  float* dt_bias_sums = nullptr;     // (B N, Hv)
  float* a_log_sums = nullptr;       // (B N, Hv)
  std::int64_t bytes = 0;
};

constexpr int kDeltaTile = 64;      // rows and columns of a tile of a product
constexpr int kDeltaDepth = 32;     // summed at once
constexpr int kDeltaThreads = 256;  // 16 numbers of a tile each

DeltaScratch delta_scratch(const GatedDeltaForward& op, std::byte* memory);
DeltaScratch delta_scratch(const GatedDeltaBackward& op, std::byte* memory);

/// Fills of_tokens, inverse and scores. @throws InvariantError for a malformed operation
void enqueue_delta_chunks(const Context& context, const DeltaInputs& in,
                          const DeltaScratch& scratch);
/// Fills rhs and updates, given the states: all chunks at once.
void enqueue_delta_updates(const Context& context, const DeltaInputs& in,
                           const DeltaScratch& scratch, const float* states);

}  // namespace meshplan::kernels::cuda
