#include "train/finite_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/run_rank.hpp"

namespace meshplan::runtime {
namespace {

constexpr std::int64_t kNobody = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;
constexpr std::int64_t kMostParameters = std::int64_t{1} << 24;

/// "nan" says as much as "-nan".
double unsigned_if_nan(double value) {
  return std::isnan(value) ? std::abs(value) : value;
}

/// Is everything finite that this rank holds of a gradient?
bool all_finite(const program::Parameter& parameter, const std::vector<program::HeldRun>& runs,
                const Arena& arena, kernels::Backend& backend) {
  const program::FlatRange all{parameter.offset, parameter.offset + parameter.elements()};
  std::vector<float> values;
  for (const program::HeldRun& run : runs) {
    const program::HeldRun held = program::clipped(run, all);
    values.resize(static_cast<std::size_t>(held.range.size()));
    const std::byte* from = arena.region(program::Region::Gradients) +
                            held.offset * static_cast<std::int64_t>(sizeof(float));
    backend.copy_to_host(values.data(), from,
                         static_cast<std::int64_t>(values.size() * sizeof(float)));
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
      return false;
  }
  return true;
}

/// Index of this rank's first gradient, in the order of the backward pass, that is not finite. That
/// order is the reverse of the parameters', which is the order of the forward pass.
std::optional<std::size_t> first_broken(const Trainer& trainer, kernels::Backend& backend) {
  const auto& parameters = trainer.program().parameters;
  const auto runs =
      program::held_runs(trainer.program(), program::Region::Gradients, trainer.shard_place());
  for (std::size_t i = parameters.size(); i-- > 0;)
    if (!all_finite(parameters[i], runs, trainer.arena(), backend)) return i;
  return std::nullopt;
}

/// The first one of all ranks: later stages come first, then later parameters, then lower ranks.
/// @returns what names it, the same on all ranks
std::string describe_first_broken(Trainer& trainer, Communicator& world,
                                  kernels::Backend& backend) {
  const auto& parameters = trainer.program().parameters;
  const int stage = trainer.program().role.stage;
  const std::int64_t stages_after = trainer.program().plan.parallel.pp - 1 - stage;
  const auto own = first_broken(trainer, backend);
  std::int64_t key = kNobody;
  if (own) {
    const auto after = static_cast<std::int64_t>(parameters.size() - 1 - *own);
    key = (stages_after * kMostParameters + after) * kMostRanks + world.rank();
  }
  const MutableBuffer buffer{&key, 1, DType::I64};
  world.all_reduce(buffer, buffer, ReduceOp::Min).wait();
  if (key == kNobody) return "every gradient is finite, so a sum over them overflowed";
  const int rank = static_cast<int>(key % kMostRanks);
  std::array<char, 256> text{};
  if (world.rank() == rank)
    fmt::format_to_n(text.data(), text.size() - 1, "{} on rank {} (stage {})",
                     parameters[*own].name, rank, stage);
  world.broadcast({text.data(), static_cast<std::int64_t>(text.size()), DType::U8}, rank).wait();
  return fmt::format("the first gradient of the backward pass that is not finite is that of {}",
                     text.data());
}

}  // namespace

void require_finite(const StepOutcome& outcome, int step, Trainer& trainer, Communicator& world,
                    kernels::Backend& backend) {
  if (std::isfinite(outcome.loss) && std::isfinite(outcome.gradient_norm)) return;
  const std::string first = describe_first_broken(trainer, world, backend);
  throw SharedError(fmt::format(
      "step {}: the loss is {:g} and the gradient norm {:g}, which must be finite; {}. "
      "A lower learning rate, a longer warm-up or a clip norm may help",
      step, unsigned_if_nan(outcome.loss), unsigned_if_nan(outcome.gradient_norm), first));
}

}  // namespace meshplan::runtime
