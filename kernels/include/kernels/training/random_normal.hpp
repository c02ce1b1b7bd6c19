// Random initial weights that do not depend on how a tensor is sharded.
//
// Algorithm: element `index` (row-major in the *global* tensor) is lane index % 4 of the
// Philox4x32-10 block (Salmon et al. 2011) with key = seed and counter = {index / 4, tensor_key}.
// The four 32-bit words w0..w3 become two Box-Muller pairs in fp64: u = (w + 0.5) / 2^32, lanes 0,
// 1 = sqrt(-2 ln u0) {cos, sin}(2 pi u1), lanes 2, 3 likewise from w2, w3; then mean + stddev *
// lane, rounded once to fp32. Only +, -, *, /, sqrt and fixed polynomials are used, without
// contraction, so every machine gives the same bits.
#pragma once

#include <cstdint>

namespace meshplan::kernels {

/// Fills a block of a global (global rows, global_columns) tensor.
struct RandomNormal {
  std::uint64_t seed = 0;
  std::uint64_t tensor_key = 0;  // identity of the tensor: content_hash of its name
  std::int64_t rows = 0;         // of the block
  std::int64_t columns = 0;      // of the block
  std::int64_t row_offset = 0;   // of the block in the global tensor
  std::int64_t column_offset = 0;
  std::int64_t global_columns = 0;
  float mean = 0.0F;
  float stddev = 1.0F;
  float* out = nullptr;  // (rows, columns)
  std::int64_t out_stride = 0;
};

}  // namespace meshplan::kernels
