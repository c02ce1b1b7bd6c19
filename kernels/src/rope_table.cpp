#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "kernels/rope.hpp"

namespace meshplan::kernels {

void build_rope_table(std::span<float> table, std::int64_t num_positions, int rope_size,
                      double base) {
  require_invariant(rope_size > 0 && rope_size % 2 == 0, "rope_size is even and positive");
  std::vector<double> inverse_frequencies(static_cast<std::size_t>(rope_size / 2));
  for (std::size_t i = 0; i < inverse_frequencies.size(); ++i)
    inverse_frequencies[i] = std::pow(base, -2.0 * static_cast<double>(i) / rope_size);
  build_rope_table(table, num_positions, inverse_frequencies);
}

void build_rope_table(std::span<float> table, std::int64_t num_positions,
                      std::span<const double> inverse_frequencies) {
  const std::size_t half = inverse_frequencies.size();
  const auto positions = static_cast<std::size_t>(num_positions);
  require_invariant(table.size() == positions * 2 * half,
                    "the rope table is positions * rope_size");
  for (std::size_t position = 0; position < positions; ++position) {
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * inverse_frequencies[i];
      table[position * 2 * half + i] = static_cast<float>(std::cos(angle));
      table[position * 2 * half + half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace meshplan::kernels
