#include <cmath>

#include "core/error.hpp"
#include "kernels/embeddings/rope.hpp"

namespace meshplan::kernels {

void build_rope_table(std::span<float> table, std::int64_t num_positions,
                      std::span<const double> inverse_frequencies, double amplitude) {
  const std::size_t half = inverse_frequencies.size();
  const auto positions = static_cast<std::size_t>(num_positions);
  require_invariant(half > 0 && table.size() == positions * 2 * half,
                    "the rope table is positions * rope_size");
  for (std::size_t position = 0; position < positions; ++position) {
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * inverse_frequencies[i];
      table[position * 2 * half + i] = static_cast<float>(amplitude * std::cos(angle));
      table[position * 2 * half + half + i] = static_cast<float>(amplitude * std::sin(angle));
    }
  }
}

}  // namespace meshplan::kernels
