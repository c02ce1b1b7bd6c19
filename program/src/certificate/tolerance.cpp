#include "program/certificate/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

#include "core/index.hpp"
#include "program/certificate/twin.hpp"
#include "program/lower/lower.hpp"
#include "program/plan/mesh.hpp"

namespace meshplan::program {
namespace {

constexpr double kMargin = 2;
/// Weights after a step differ by what their gradients did, and the next gradients by what the
/// weights do: a step at most doubles what it was given.
constexpr double kGrowth = 2;
constexpr double kFloorInExact = 1e-4;
constexpr double kFloorInHalf = 1e-2;
constexpr double kLossInFloat8 = 0x1p-6;
constexpr double kFloat8Roundoff = 0x1p-4;  // of E4M3
/// A token that was rounded reaches its expert's output by both factors of the gated activation,
/// through weights of their own: like two tensors that are rounded.
constexpr double kRoundedByPack = 2;

/// Works on numbers, rather than moving them.
bool computes(ComputeKind kind) {
  switch (kind) {
    case ComputeKind::Slice:
    case ComputeKind::Concat:
    case ComputeKind::SliceRows:
    case ComputeKind::SliceColumns:
    case ComputeKind::PackColumns:
    case ComputeKind::UnpackColumns:
    case ComputeKind::Dispatch:
    case ComputeKind::RegroupRows:
    case ComputeKind::NodeRouting:
    case ComputeKind::PackRows:  // counted by itself
    case ComputeKind::UnpackRows:
    case ComputeKind::KeyValues:
    case ComputeKind::OrderChunks:
    case ComputeKind::LatentHeads:
    case ComputeKind::Pool:
      return false;
    default:
      return true;
  }
}

bool sums(Collective collective) {
  return collective == Collective::AllReduce || collective == Collective::ReduceScatter;
}

/// Rounds tokens to E4M3 before they travel to their experts.
bool packs_rows(const Operation& operation) {
  const auto* work = std::get_if<ComputeOp>(&operation.work);
  return work != nullptr && work->kind == ComputeKind::PackRows &&
         operation.phase == Phase::Forward;
}

double rounded_by(const Plan& plan, const Block& block, const Operation& operation) {
  constexpr double kCoarser = 4;  // the square of E5M2's roundoff, in E4M3's
  if (operation.phase == Phase::Recompute || operation.phase == Phase::WeightGrad) return 0;
  const bool float8 = plan.workload.fp8 != Float8Recipe::None;
  if (const auto* collective = std::get_if<CollectiveOp>(&operation.work))
    return sums(collective->collective) && !float8 ? group_size(collective->group, plan) : 0;
  const auto& work = std::get<ComputeOp>(operation.work);
  if (float8 && packs_rows(operation)) return kRoundedByPack;
  if (float8) return !work.cast ? 0 : work.cast->gradient ? kCoarser : 1;
  if (!computes(work.kind)) return 0;
  return static_cast<double>(std::ranges::count_if(operation.outputs, [&](ValueId id) {
    const Value& value = block.values[at(root_of(block, id))];
    return value.dtype == plan.workload.precision && value.storage != Storage::Gradient;
  }));
}

/// That a step's loss is the mean of, whose errors cancel: tokens, or an encoder's sequences.
double loss_terms(const Plan& twin) {
  const auto sequences = static_cast<double>(twin.workload.global_batch_size);
  if (twin.model.num_classes > 0) return sequences;
  return sequences * static_cast<double>(twin.workload.seq_len);
}

/// Numbers in the longest sum: over the tokens of a step, over the vocabulary, or over a width.
std::int64_t longest_reduction(const Plan& twin) {
  const models::ModelSpec& model = twin.model;
  const std::int64_t tokens = twin.workload.global_batch_size * twin.workload.seq_len;
  return std::max({tokens, std::int64_t{model.vocab_size}, std::int64_t{model.hidden_size},
                   std::int64_t{model.ffn_size}, std::int64_t{model.num_heads} * model.head_size});
}

/// The plan's and one rank's.
double rounded_in_both(const Plan& plan) {
  return rounded_tensors(plan) + rounded_tensors(one_rank_plan(plan));
}

Tolerance exact_tolerance(const Plan& twin) {
  const double tensors = rounded_in_both(twin);
  const auto length = static_cast<double>(longest_reduction(twin));
  const double relative =
      kMargin * std::sqrt(tensors * length) * kRoundingError * unit_roundoff(DType::F32);
  return {.relative = relative,
          .loss = relative,
          .floor = kFloorInExact,
          .growth = kGrowth,
          .most = kMostInExact,
          .derivation = fmt::format(
              "fp32: {:g} sqrt(N n) {:g} u = {:.2g}, with u = 2^-24, N = {:g} tensors that the two "
              "runs round between the loss and the first layer, sums of at most n = {:g} numbers{}",
              kMargin, kRoundingError, relative, tensors, length,
              relative > kMostInExact ? fmt::format("; of a gradient at most {:g}", kMostInExact)
                                      : "")};
}

}  // namespace

double unit_roundoff(DType precision) {
  if (precision == DType::BF16) return 0x1p-8;
  return precision == DType::F16 ? 0x1p-11 : 0x1p-24;
}

namespace {

/// Sum of `count` over the operations of all layers.
double sum_over_operations(const Plan& plan, const auto& count) {
  double sum = 0;
  for (const Program& program : lower_all(plan))
    for (const LayerInstance& layer : program.layers) {
      const Block& block = program.blocks[at(layer.block)];
      for (const auto* operations : {&block.forward, &block.backward})
        for (const Operation& operation : *operations) sum += count(block, operation);
    }
  return sum;
}

/// What tokens in FP8 add to the roundings of a 16-bit format: those of their own, which are
/// independent of the others.
double dispatch_tolerance(const Plan& plan) {
  if (!plan.expert_dispatch_fp8) return 0;
  const double packed = sum_over_operations(plan, [](const Block&, const Operation& operation) {
    return packs_rows(operation) ? kRoundedByPack : 0;
  });
  return std::sqrt(packed) * kRoundingError * kFloat8Roundoff;
}

}  // namespace

double rounded_tensors(const Plan& plan) {
  return sum_over_operations(plan, [&](const Block& block, const Operation& operation) {
    return rounded_by(plan, block, operation);
  });
}

double half_tolerance(const Plan& plan) {
  const double rounded =
      std::sqrt(rounded_in_both(plan)) * kRoundingError * unit_roundoff(plan.workload.precision);
  return std::hypot(rounded, dispatch_tolerance(plan));
}

double float8_tolerance(const Plan& plan) {
  return std::sqrt(rounded_in_both(plan)) * kRoundingError * kFloat8Roundoff;
}

double Tolerance::grown(double first, int step) const {
  return first * std::pow(growth, step);
}

Tolerance tolerance_of(const Plan& twin) {
  const Precision precision = precision_of(twin.workload);
  if (precision == Precision::F32) return exact_tolerance(twin);
  const bool float8 = precision == Precision::Fp8;
  const double relative = float8 ? float8_tolerance(twin) : half_tolerance(twin);
  const bool coarse = float8 || twin.expert_dispatch_fp8;
  const double least = coarse ? kLossInFloat8 : unit_roundoff(twin.workload.precision);
  return {
      .relative = relative,
      .loss = std::max(least, relative / std::sqrt(loss_terms(twin))),
      .floor = kFloorInHalf,
      .growth = kGrowth,
      .of_rounding = kMargin * std::numbers::sqrt2,
      .derivation = fmt::format(
          "{}: sqrt(N) {:g} u = {:.2g} of the N = {:g} tensors that the two runs round apart{}, or "
          "2 sqrt(2) times what one rank differs from one in fp32",
          precision_name(twin.workload), kRoundingError, relative, rounded_in_both(twin),
          twin.expert_dispatch_fp8 ? ", with tokens in FP8 on their way to experts" : "")};
}

}  // namespace meshplan::program
