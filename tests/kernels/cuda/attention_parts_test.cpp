#include "attention/attention_parts.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "kernels/cpu_backend.hpp"
#include "kernels/support.hpp"

namespace meshplan::kernels::cuda::test {

namespace {

using kernels::test::DeviceMatrix;
using kernels::test::random_in;

/// Three sequences of six query heads on three, q beside k and v.
struct Attention {
  explicit Attention(Backend& backend)
      : qkv(backend, random_in(DType::F32, 3 * 5, 12 * 8, 1)),
        output_grad(backend, random_in(DType::F32, 3 * 5, 6 * 8, 2)),
        o(backend, 3 * 5, 6 * 8),
        lse(backend, 3 * 6, 5),
        gradient(backend, 3 * 5, 12 * 8) {}

  AttentionForward forward() const {
    return {.shape = shape,
            .q = qkv.data(),
            .q_stride = qkv.stride(),
            .k = qkv.floats() + 6 * 8,
            .v = qkv.floats() + 9 * 8,
            .kv_stride = qkv.stride(),
            .o = o.data(),
            .o_stride = o.stride(),
            .lse = lse.floats()};
  }
  AttentionBackward backward() const {
    return {.shape = shape,
            .q = qkv.data(),
            .q_stride = qkv.stride(),
            .k = qkv.floats() + 6 * 8,
            .v = qkv.floats() + 9 * 8,
            .kv_stride = qkv.stride(),
            .o = o.data(),
            .o_stride = o.stride(),
            .output_grad = output_grad.data(),
            .lse = lse.floats(),
            .dq = gradient.data(),
            .dq_stride = gradient.stride(),
            .dk = gradient.floats() + 6 * 8,
            .dv = gradient.floats() + 9 * 8,
            .dkv_stride = gradient.stride()};
  }

  AttentionShape shape{
      .num_sequences = 3, .query_len = 5, .key_len = 5, .heads = 6, .kv_heads = 3, .head_size = 8};
  DeviceMatrix qkv, output_grad, o, lse, gradient;
};

}  // namespace

TEST_CASE("The parts of an attention write what the whole writes", "[kernels][cuda]") {
  const auto backend = make_cpu_backend(1);
  Attention attention(*backend);
  kernels::test::run(*backend, attention.forward());
  const AttentionBackward op = attention.backward();
  kernels::test::run(*backend, op);
  const std::vector<std::uint8_t> expected = attention.gradient.bits();
  std::vector<std::size_t> counts;
  for (AttentionPart part = whole(op);; part = halved(part)) {
    backend->zero(op.dq, 3 * 5 * attention.gradient.stride() * size_of(DType::F32));
    const std::vector<AttentionBackward> parts = parts_of(op, part);
    for (const AttentionBackward& one : parts) kernels::test::run(*backend, one);
    CHECK(attention.gradient.bits() == expected);
    counts.push_back(parts.size());
    if (part.sequences * part.kv_heads == 1) break;
  }
  CHECK(counts == std::vector<std::size_t>{1, 2, 3, 6, 9});
}

}  // namespace meshplan::kernels::cuda::test
