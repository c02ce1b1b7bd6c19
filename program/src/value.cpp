#include "program/value.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace meshplan::program {

bool is_kept(const Value& value) {
  return value.storage == Storage::Saved || value.storage == Storage::LayerInput ||
         (value.storage == Storage::LayerOutputGrad && value.keep == Keep::BetweenGrads);
}

bool has_routed_rows(const Value& value) {
  return std::ranges::any_of(value.shape, [](const models::Dim& dim) {
    return dim.symbol == models::Symbol::RoutedTokens;
  });
}

std::vector<std::int64_t> local_shape(const models::SymbolValues& sizes, const Value& value) {
  std::vector<std::int64_t> shape;
  for (const models::Dim& dim : value.shape) shape.push_back(models::evaluate(dim, sizes));
  return shape;
}

models::Dim element_count(const std::vector<models::Dim>& shape) {
  models::Dim total;
  for (const models::Dim& dim : shape) {
    total.count *= dim.count;
    total.divisor *= dim.divisor;
    if (dim.symbol == models::Symbol::One) continue;
    require_invariant(total.symbol == models::Symbol::One, "a shape with two symbols");
    total.symbol = dim.symbol;
  }
  return total;
}

}  // namespace meshplan::program
