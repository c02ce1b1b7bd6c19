// Whole plans in FP8: against the same model in bf16 whose products are emulated slowly, number by
// number; against themselves on other meshes; and how they train beside bf16.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <iostream>

#include "cpu_backend.hpp"
#include "runtime/parity/parity_precision.hpp"

namespace meshplan::test::parity_float8 {
namespace {

using program::Precision;

Plan fp8_plan(models::ModelSpec model, const ParallelConfig& parallel = {}) {
  model.ffn_size = 128;
  Plan plan = base_plan(model);
  program::set_precision(plan.workload, Precision::Fp8);
  plan.workload.seq_len = 64;
  plan.parallel = parallel;
  return plan;
}

// ---------------------------------------------------------------- a slow reference

struct Format {
  int mantissa_bits;
  int smallest_exponent;  // of a normal number
  double largest;
};
constexpr Format kE4M3{3, -6, 448};  // Micikevicius et al. 2022, table 1
constexpr Format kE5M2{2, -14, 57344};

/// Nearest number of the format, ties to even.
double rounded(double x, const Format& format) {
  if (x == 0) return 0;
  const int exponent = std::max(std::ilogb(x), format.smallest_exponent);
  const double unit = std::ldexp(1.0, exponent - format.mantissa_bits);
  return std::clamp(std::nearbyint(x / unit) * unit, -format.largest, format.largest);
}

using Numbers = std::vector<double>;

Numbers from_bf16(const void* data, std::int64_t count) {
  Numbers numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = static_cast<const std::uint16_t*>(data)[i];
    numbers.push_back(std::bit_cast<float>(bits << 16));
  }
  return numbers;
}

std::uint16_t to_bf16(double x) {
  const auto word = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  return static_cast<std::uint16_t>((word + 0x7fffU + (word >> 16 & 1U)) >> 16);
}

/// What is left of bf16 numbers in FP8: quantized with the scale of the largest, and back.
Numbers in_float8(const void* data, std::int64_t count, const Format& format) {
  Numbers numbers = from_bf16(data, count);
  double largest = 0;
  for (const double x : numbers) largest = std::max(largest, std::abs(x));
  if (largest == 0) return numbers;
  const float scale = static_cast<float>(largest) / static_cast<float>(format.largest);
  const float inverse = 1.0F / scale;  // the product of it and x is rounded to fp32
  for (double& x : numbers)
    x = rounded(double{static_cast<float>(x) * inverse}, format) * double{scale};
  return numbers;
}

/// bf16 plans on it compute what FP8 plans should: every linear layer but the output layer with
/// operands that have been through FP8, sums in doubles.
class EmulatingBackend final : public kernels::CpuBackend {
 public:
  explicit EmulatingBackend(std::int64_t vocabulary)
      : CpuBackend(1, kernels::best_cpu_isa()), vocabulary_(vocabulary) {}

  void run(const kernels::Operation& operation) override {
    std::visit(
        [this](const auto& op) {
          if constexpr (requires { emulate(op); })
            emulate(op);
          else
            CpuBackend::run(op);
        },
        operation);
  }

 private:
  void emulate(const kernels::LinearForward& op) {
    const auto [t, in, out] = op.shape;
    if (out == vocabulary_) return CpuBackend::run(op);
    const Numbers x = in_float8(op.x, t * in, kE4M3);
    const Numbers w = in_float8(op.weight, out * in, kE4M3);
    const Numbers bias = op.bias == nullptr ? Numbers{} : from_bf16(op.bias, out);
    auto* y = static_cast<std::uint16_t*>(op.y);
    for (std::int64_t i = 0; i < t; ++i)
      for (std::int64_t j = 0; j < out; ++j) {
        double sum = bias.empty() ? 0 : bias[at(j)];
        for (std::int64_t k = 0; k < in; ++k) sum += x[at(i * in + k)] * w[at(j * in + k)];
        y[i * out + j] = to_bf16(sum);
      }
  }

  void emulate(const kernels::LinearInputGrad& op) {
    const auto [t, in, out] = op.shape;
    if (out == vocabulary_) return CpuBackend::run(op);
    const Numbers dy = in_float8(op.dy, t * out, kE5M2);
    const Numbers w = in_float8(op.weight, out * in, kE4M3);
    auto* dx = static_cast<std::uint16_t*>(op.dx);
    for (std::int64_t i = 0; i < t; ++i)
      for (std::int64_t k = 0; k < in; ++k) {
        double sum = 0;
        for (std::int64_t j = 0; j < out; ++j) sum += dy[at(i * out + j)] * w[at(j * in + k)];
        dx[i * in + k] = to_bf16(sum);
      }
  }

  void emulate(const kernels::LinearWeightGrad& op) {
    const auto [t, in, out] = op.shape;
    if (op.dweight == nullptr || out == vocabulary_) return CpuBackend::run(op);
    const Numbers dy = in_float8(op.dy, t * out, kE5M2);
    const Numbers x = in_float8(op.x, t * in, kE4M3);
    for (std::int64_t j = 0; j < out; ++j)
      for (std::int64_t k = 0; k < in; ++k) {
        double sum = op.accumulate ? op.dweight[j * in + k] : 0;
        for (std::int64_t i = 0; i < t; ++i) sum += dy[at(i * out + j)] * x[at(i * in + k)];
        op.dweight[j * in + k] = static_cast<float>(sum);
      }
    kernels::LinearWeightGrad bias = op;
    bias.dweight = nullptr;
    if (op.dbias != nullptr) CpuBackend::run(bias);
  }

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  std::int64_t vocabulary_;
};

/// Adds products up in doubles.
class ExactBackend final : public kernels::CpuBackend {
 public:
  ExactBackend() : CpuBackend(1, kernels::best_cpu_isa()) {}

  void run(const kernels::Operation& operation) override {
    if (const auto* product = std::get_if<kernels::ScaledProduct>(&operation))
      multiply(*product);
    else
      CpuBackend::run(operation);
  }

 private:
  void multiply(const kernels::ScaledProduct& op) {
    const auto number = [](const std::uint8_t* codes, std::int64_t i, kernels::Float8Format format,
                           const float* scale) {
      return double{kernels::from_float8(codes[i], format)} * double{*scale};
    };
    for (std::int64_t i = 0; i < op.m; ++i)
      for (std::int64_t j = 0; j < op.n; ++j) {
        const std::int64_t at = i * op.n + j;
        double sum = op.accumulate ? static_cast<float*>(op.out)[at] : 0;
        if (op.bias != nullptr)
          sum = from_bf16(static_cast<const std::uint16_t*>(op.bias) + j, 1).front();
        for (std::int64_t k = 0; k < op.k; ++k)
          sum += number(op.a, i * op.k + k, op.a_format, op.a_scale) *
                 number(op.b, j * op.k + k, op.b_format, op.b_scale);
        if (op.out_dtype == DType::F32)
          static_cast<float*>(op.out)[at] = static_cast<float>(sum);
        else
          static_cast<std::uint16_t*>(op.out)[at] = to_bf16(sum);
      }
  }
};

/// Runs of one rank on rank 0, which compares: eight ranks at once would take eight times as long.
class FirstRank {
 public:
  explicit FirstRank(Fixture& fixture)
      : fixture_(fixture),
        self_(fixture.world->rank()),
        alone_(fixture.world->create_group(std::span(&self_, 1), "alone")) {}

  std::optional<RunResult> run(const Plan& plan, int steps = kSteps) {
    if (self_ != 0) return std::nullopt;
    return run_plan(plan, steps, *alone_, *fixture_.backend);
  }

 private:
  Fixture& fixture_;
  int self_;
  std::unique_ptr<runtime::Communicator> alone_;
};

}  // namespace

// With sums in doubles on both sides nothing is left to differ but what is quantized and
// multiplied. The kernel's sums are in fp32: now and then a result in bf16 is another one, and
// where that is the largest of a tensor, so is the scale, and everything is rounded anew.
TEST_CASE("a rank computes in FP8 what a slow emulation of its products does", "[parity]") {
  Fixture fixture;
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()}) {
    Plan plan = fp8_plan(model);
    plan.workload.global_batch_size = 2;
    ExactBackend doubles;
    const auto exact = fixture.run(plan, {}, {}, &doubles);
    const auto run = fixture.run(plan);
    program::set_precision(plan.workload, Precision::BF16);
    EmulatingBackend slow(384);  // 300 tokens, padded to a multiple of 128
    Variant plain;
    plain.profile.fused_activations = false;
    plain.profile.fused_residuals = false;
    const auto emulated = fixture.run(plan, {}, plain, &slow);
    const auto bf16 = fixture.run(plan);
    if (!run) continue;
    const GradientError wiring = compare_gradients(*exact, *emulated);
    const GradientError error = compare_gradients(*run, *emulated, kSmallInHalf);
    const GradientError to_bf16 = compare_gradients(*emulated, *bf16, kSmallInHalf);
    const double tolerance = float8_tolerance(fp8_plan(model));
    std::cout << fmt::format(
        "{} in fp8: worst gradient {:.1e} off its emulation, with sums in fp32 {:.4f} (tolerance "
        "{:.4f}), from bf16 {:.4f}\n",
        model.name, wiring.relative, error.relative, tolerance, to_bf16.relative);
    INFO(wiring.worst << " by " << wiring.relative << "; " << error.worst << " by "
                      << error.relative);
    CHECK(wiring.relative <= 1e-6);  // gradients are kept in fp32
    CHECK(exact->losses.front() == emulated->losses.front());
    CHECK(error.relative <= tolerance);
    CHECK(to_bf16.relative > 1e-2);
  }
}

TEST_CASE("in fp8 the same micro-batches give the same gradients, wherever they are computed",
          "[parity]") {
  Fixture fixture;
  FirstRank first(fixture);
  const Plan plan = fp8_plan(llama_style());
  const auto reference = first.run(plan);
  for (const auto recompute : {RecomputeKind::Selective, RecomputeKind::Full}) {
    Plan again = plan;
    again.recompute.kind = recompute;
    if (const auto run = first.run(again)) CHECK(run->weights_hash == reference->weights_hash);
  }
  struct Case {
    ParallelConfig parallel;
    ScheduleKind schedule = ScheduleKind::OneFOneB;
    int zero_stage = 0;
  };
  for (const Case& one :
       {Case{{.pp = 4}, ScheduleKind::GPipe}, Case{{.pp = 2}, ScheduleKind::ZbH1},
        Case{{.pp = 2, .vpp = 2}, ScheduleKind::ZbV},
        Case{{.pp = 2, .vpp = 2}, ScheduleKind::DualPipeV},
        Case{{.pp = 2, .vpp = 2}, ScheduleKind::Interleaved}, Case{{.dp = 8}},
        Case{{.dp = 2}, ScheduleKind::OneFOneB, 2}, Case{{.dp = 4}, ScheduleKind::OneFOneB, 3},
        Case{{.pp = 2, .dp = 2}, ScheduleKind::OneFOneB, 1}}) {
    Plan other = plan;
    other.parallel = one.parallel;
    other.schedule = one.schedule;
    other.zero_stage = one.zero_stage;
    const auto run = fixture.run(other);
    if (!reference) continue;
    // Gradients are summed over micro-batches in fp32, in another order.
    const GradientError error = compare_gradients(*run, *reference);
    INFO(describe(other) << " zero " << one.zero_stage << ": " << error.worst << " by "
                         << error.relative);
    CHECK(error.relative <= 1e-6);
    CHECK(run->losses.front() == Approx(reference->losses.front()).epsilon(1e-9));
  }
}

// Shards over tp, and the tokens of cp ranks, have scales of their own.
TEST_CASE("in fp8 no bit depends on who finds a tensor's largest number", "[parity]") {
  Fixture fixture;
  Variant apart;
  apart.profile.kept_largest = false;
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const auto recompute :
         {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}) {
      Plan plan = fp8_plan(model);
      plan.recompute.kind = recompute;
      const auto kept = fixture.run(plan);
      const auto found = fixture.run(plan, {}, apart);
      if (!kept) continue;
      INFO(model.name << ": " << describe(plan));
      CHECK(kept->losses == found->losses);
      CHECK(kept->weights_hash == found->weights_hash);
    }
}

TEST_CASE("in fp8 plans with shards give the gradients of one rank to the format's precision",
          "[parity]") {
  Fixture fixture;
  FirstRank first(fixture);
  double worst = 0;
  const std::vector<ParallelConfig> of_llama = {
      {.tp = 2, .sp = true}, {.cp = 2}, {.tp = 2, .pp = 2, .dp = 2, .sp = true}};
  const std::vector<ParallelConfig> of_gpt2 = {{.tp = 4}, {.tp = 2, .cp = 2, .dp = 2}};
  for (const auto& [model, meshes] :
       {std::pair(llama_style(), of_llama), std::pair(gpt2_style(), of_gpt2)}) {
    const auto reference = first.run(fp8_plan(model));
    for (const ParallelConfig& parallel : meshes) {
      Plan plan = fp8_plan(model, parallel);
      plan.recompute.kind = static_cast<RecomputeKind>(parallel.world_size() % 3);
      const auto run = fixture.run(plan);
      if (!reference) continue;
      const double tolerance = float8_tolerance(plan);
      const GradientError error = compare_gradients(*run, *reference, kSmallInHalf);
      worst = std::max(worst, error.relative / tolerance);
      INFO(model.name << ": " << describe(plan) << ", worst gradient " << error.worst << " by "
                      << error.relative << ", tolerance " << tolerance);
      CHECK(error.relative <= tolerance);
      CHECK(error.small_absolute <= tolerance * kSmallInHalf);
      CHECK(run->losses.front() == Approx(reference->losses.front()).epsilon(0x1p-6));
      CHECK(run->losses.back() < run->losses.front());
    }
  }
  if (worst > 0)
    std::cout << fmt::format("fp8: worst gradient error {:.2f} of the tolerance\n", worst);
}

TEST_CASE("fp8 trains as bf16 does", "[parity]") {
  constexpr int kLongRun = 30;
  Fixture fixture;
  FirstRank first(fixture);
  Plan plan = fp8_plan(llama_style());
  plan.workload.optimizer.learning_rate = 3e-3;
  const auto in_fp8 = first.run(plan, kLongRun);
  program::set_precision(plan.workload, Precision::BF16);
  const auto in_bf16 = first.run(plan, kLongRun);
  if (!in_fp8) return;
  const RunResult& fp8 = *in_fp8;
  const RunResult& bf16 = *in_bf16;
  double widest = 0;
  for (std::size_t step = 0; step < fp8.losses.size(); ++step)
    widest = std::max(widest, std::abs(fp8.losses[step] / bf16.losses[step] - 1));
  std::cout << fmt::format(
      "loss of {} steps: bf16 {:.4f} to {:.4f}, fp8 {:.4f} to {:.4f}, at most "
      "{:.2f} % apart\n",
      kLongRun, bf16.losses.front(), bf16.losses.back(), fp8.losses.front(), fp8.losses.back(),
      100 * widest);
  // Micikevicius et al. 2022, section 4: FP8 ends within the noise of runs in 16 bits. Here noise
  // is what gradients are off by, of what the loss has fallen: a step in a direction that is off by
  // e falls by 1 - e^2 / 2 of it.
  const double fallen = 1 - bf16.losses.back() / bf16.losses.front();
  CHECK(fallen > 0.1);
  CHECK(widest <= fallen * std::pow(float8_tolerance(fp8_plan(llama_style())), 2));
}

}  // namespace meshplan::test::parity_float8
