// That the numbers come out right is checked by linear_test on the emulated backend, whose products
// are computed from the GemmProblem alone. Here: which problem is asked for.
#include "products/gemm_problem.hpp"

#include <array>
#include <catch2/catch.hpp>

#include "core/error.hpp"

namespace meshplan::kernels::cuda::test {

namespace {

alignas(16) std::array<float, 64> memory;

/// 3 tokens, 4 -> 5 features, rows wider than they need to be.
LinearForward forward() {
  return {.shape = {3, 4, 5},
          .dtype = DType::BF16,
          .x_stride = 8,
          .weight_stride = 16,
          .y_stride = 24,
          .pre_activation_stride = 32};
}

}  // namespace

TEST_CASE("forward is y^T = w x^T without moving anything", "[kernels][cuda]") {
  const GemmProblem p = plain_gemm(forward());
  CHECK(p == GemmProblem{.m = 5,
                         .n = 3,
                         .k = 4,
                         .transpose_a = true,
                         .a = {4, 5, 16, DType::BF16},
                         .b = {4, 3, 8, DType::BF16},
                         .d = {5, 3, 24, DType::BF16}});
}

TEST_CASE("a residual is what the product is added to, with a bias or without", "[kernels][cuda]") {
  const std::array<float, 8> bias{};
  for (const bool with_bias : {false, true}) {
    LinearForward op = forward();
    op.residual = memory.data();
    op.bias = with_bias ? bias.data() : nullptr;
    GemmProblem expected = plain_gemm(op);
    CHECK_FALSE(expected.adds_residual);
    expected.adds_residual = true;
    CHECK(fused_gemm(op) == expected);
    CHECK(gemm_pointers(op).c == memory.data());
  }
}

TEST_CASE("the weight gradient adds in fp32 and sums dy where asked", "[kernels][cuda]") {
  const LinearWeightGrad op{.shape = {3, 4, 5},
                            .dtype = DType::BF16,
                            .dy_stride = 24,
                            .x_stride = 8,
                            .dweight_stride = 16,
                            .accumulate = true};
  const GemmProblem p = plain_gemm(op, true);
  CHECK(p == GemmProblem{.m = 4,
                         .n = 5,
                         .k = 3,
                         .transpose_b = true,
                         .a = {4, 3, 8, DType::BF16},
                         .b = {5, 3, 24, DType::BF16},
                         .d = {4, 5, 16, DType::F32},
                         .epilogue = GemmEpilogue::BiasGradB,
                         .accumulate = true});
  CHECK(plain_gemm(op, false).epilogue == GemmEpilogue::None);
}

TEST_CASE("tanh GELU fuses into the product, SiLU and exact GELU do not", "[kernels][cuda]") {
  LinearForward op = forward();
  CHECK_FALSE(fused_gemm(op));
  op.activation = ActivationKind::GeluTanh;
  CHECK(fused_gemm(op)->epilogue == GemmEpilogue::Gelu);
  op.bias = memory.data();
  CHECK(fused_gemm(op)->epilogue == GemmEpilogue::GeluBias);
  op.pre_activation = memory.data();
  CHECK(fused_gemm(op)->epilogue == GemmEpilogue::GeluAuxBias);
  CHECK(fused_gemm(op)->aux_leading_dim == 32);
  op.activation = ActivationKind::Gelu;
  CHECK_FALSE(fused_gemm(op));
  op.activation = ActivationKind::Silu;
  CHECK_FALSE(fused_gemm(op));
}

TEST_CASE("what cuBLASLt keeps for a backward is aligned as it demands", "[kernels][cuda]") {
  LinearInputGrad op{.shape = {3, 4, 5},
                     .dtype = DType::BF16,
                     .dy_stride = 8,
                     .weight_stride = 8,
                     .dx_stride = 8,
                     .activation = ActivationKind::GeluTanh,
                     .pre_activation = memory.data(),
                     .pre_activation_stride = 8};
  CHECK(fused_gemm(op)->epilogue == GemmEpilogue::DGelu);
  op.pre_activation_stride = 12;
  CHECK_FALSE(fused_gemm(op));
  op.pre_activation_stride = 8;
  op.pre_activation = memory.data() + 1;
  CHECK_FALSE(fused_gemm(op));
}

TEST_CASE("ReLU fuses only where its input is not kept: cuBLASLt keeps a bit mask",
          "[kernels][cuda]") {
  LinearForward op = forward();
  op.activation = ActivationKind::Relu;
  CHECK(fused_gemm(op)->epilogue == GemmEpilogue::Relu);
  op.pre_activation = memory.data();
  CHECK_FALSE(fused_gemm(op));
}

TEST_CASE("an FP8 product is TN with operands and scales exchanged", "[kernels][cuda]") {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(memory.data());
  const float scales[2] = {2.0F, 3.0F};
  ScaledProduct op{.m = 32,
                   .n = 48,
                   .k = 64,
                   .a_format = Float8Format::E5M2,
                   .a = bytes,
                   .b = bytes + 16,
                   .a_scale = &scales[0],
                   .b_scale = &scales[1]};
  const GemmProblem p = scaled_gemm(op);
  CHECK((p.m == 48 && p.n == 32 && p.k == 64));
  CHECK((p.transpose_a && !p.transpose_b && p.scaled));
  CHECK((p.a.rows == 64 && p.a.columns == 48 && p.a.leading_dim == 64));
  CHECK((p.b.rows == 64 && p.b.columns == 32 && p.b.leading_dim == 64));
  CHECK((p.d.rows == 48 && p.d.columns == 32 && p.d.leading_dim == 48));
  CHECK(p.a.float8 == Float8Format::E4M3);
  CHECK(p.b.float8 == Float8Format::E5M2);
  const GemmPointers pointers = gemm_pointers(op);
  CHECK(pointers.a == op.b);
  CHECK(pointers.a_scale == op.b_scale);
  CHECK(pointers.b_scale == op.a_scale);
  CHECK(describe_in_words(p) == "m 48 n 32 k 64 e4m3 x e5m2 TN -> bf16 epilogue none");
  CHECK_FALSE(p.fast_accumulation);
  op.fast_accumulation = true;  // other kernels, so another choice
  CHECK(describe_in_words(scaled_gemm(op)) ==
        "m 48 n 32 k 64 e4m3 x e5m2 TN fast -> bf16 epilogue none");
  op.k = 72;
  CHECK_THROWS_AS(scaled_gemm(op), InvariantError);
  op.k = 64;
  op.b_format = Float8Format::E5M2;
  CHECK_THROWS_AS(scaled_gemm(op), InvariantError);
}

TEST_CASE("alignment is that of address and leading dimension together", "[kernels][cuda]") {
  const auto* base = reinterpret_cast<const void*>(std::uintptr_t{4096});
  CHECK(gemm_alignment(base, 1024, DType::BF16) == 256);
  CHECK(gemm_alignment(base, 8, DType::BF16) == 16);
  CHECK(gemm_alignment(base, 5, DType::F32) == 4);
  CHECK(gemm_alignment(reinterpret_cast<const void*>(std::uintptr_t{4098}), 8, DType::BF16) == 2);
}

TEST_CASE("a problem is named so that a reader can find it", "[kernels][cuda]") {
  CHECK(describe_in_words(plain_gemm(forward())) == "m 5 n 3 k 4 bf16 TN -> bf16 epilogue none");
}

}  // namespace meshplan::kernels::cuda::test
