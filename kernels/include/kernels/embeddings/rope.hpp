// Rotary position embedding (Su et al. 2021) in the half-rotation form of Hugging Face's llama:
// element i of a head is paired with element i + R/2.
//
// T tokens, N heads to rotate, E head size, R = rope_size <= E (the rest of the head passes
// through).
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.hpp"
#include "kernels/embeddings/positions.hpp"

namespace meshplan::kernels {

/// Rotates, in place, N heads of each row that lie side by side: the q and k part of a fused qkv
/// buffer are N = H + K heads. `inverse` is the transpose, which is the backward; with a table of
/// amplitude 1 it rotates back.
/// Traffic: 2 T N R elements.
struct Rope {
  std::int64_t tokens = 0;
  int heads = 0;      // N
  int head_size = 0;  // E
  int rope_size = 0;  // R
  RowPositions positions;
  DType dtype = DType::F32;
  void* x = nullptr;  // (T, N E), in place
  std::int64_t x_stride = 0;
  const float* table = nullptr;  // (positions, R): R/2 cosines, then R/2 sines
  bool inverse = false;
};

/// Fills `table` (num_positions, R) on the host, in fp64, rounded once: cosines and sines of
/// position * inverse_frequencies[i], times `amplitude`.
/// @param inverse_frequencies  radians per position, R/2 of them
/// @throws InvariantError if there are none or the table has another size
void build_rope_table(std::span<float> table, std::int64_t num_positions,
                      std::span<const double> inverse_frequencies, double amplitude = 1.0);

}  // namespace meshplan::kernels
