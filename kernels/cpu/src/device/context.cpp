#include "device/context.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::kernels::cpu {

void require_scratch(const Context& context, std::int64_t bytes) {
  if (std::ssize(context.scratch) >= bytes) return;  // format only what is thrown
  throw InvariantError(fmt::format("the operation needs {} bytes of scratch, set_scratch gave {}",
                                   bytes, context.scratch.size()));
}

void require_float(DType dtype) {
  require_invariant(dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16,
                    "kernels compute in fp32, bf16 or fp16");
}

}  // namespace meshplan::kernels::cpu
