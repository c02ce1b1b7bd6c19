#include "program/parameter.hpp"

#include <functional>
#include <numeric>

namespace meshplan::program {

std::int64_t Parameter::elements() const {
  return std::accumulate(local_shape.begin(), local_shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

}  // namespace meshplan::program
