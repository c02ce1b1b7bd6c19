#include "program/plan/stack.hpp"

#include "core/error.hpp"

namespace meshplan::program {

int size_of(StateDType dtype) {
  switch (dtype) {
    case StateDType::F32:
      return 4;
    case StateDType::BF16:
    case StateDType::F16:
      return 2;
    case StateDType::Fp8:
      return 1;
  }
  throw InvariantError("unknown dtype of optimizer state");
}

double bytes_of(FrozenStorage storage) {
  switch (storage) {
    case FrozenStorage::Bf16:
      return 2;
    case FrozenStorage::F32:
      return 4;
    case FrozenStorage::Int8:
      return 1;  // a row's scale is shared by thousands
    case FrozenStorage::Nf4: {
      // 4 bits, an 8-bit scale for 64 weights, and 32 bits for 256 such scales.
      constexpr double kBits = 4 + 8.0 / 64 + 32.0 / (64 * 256);
      return kBits / 8;
    }
  }
  throw InvariantError("unknown storage of frozen weights");
}

}  // namespace meshplan::program
