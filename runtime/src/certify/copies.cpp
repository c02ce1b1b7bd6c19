#include "certify/copies.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <utility>

#include "certify/shard_elements.hpp"
#include "core/coordinates.hpp"
#include "program/certificate/twin.hpp"
#include "program/shard_layout.hpp"

namespace meshplan::runtime {
namespace {

using program::ExactCheck;
using program::HeldRun;
using program::Parameter;
using program::Region;

constexpr std::int32_t kNotHeld = std::numeric_limits<std::int32_t>::min();

std::string_view words_for(Region region) {
  switch (region) {
    case Region::Weights:
      return "weights";
    case Region::MasterWeights:
      return "fp32 weights";
    case Region::Gradients:
      return "gradients";
    case Region::Moment1:
      return "first moments";
    default:
      return "second moments";
  }
}

DType dtype_of(const program::Program& program, Region region) {
  return region == Region::Weights ? program.plan.workload.precision : DType::F32;
}

/// Marks elements of the flat parameters.
std::vector<char> marks_of(Trainer& trainer, const std::vector<HeldRun>& runs) {
  std::vector<char> marks(static_cast<std::size_t>(trainer.program().parameter_elements));
  for (const HeldRun& run : runs)
    std::fill(marks.begin() + run.range.begin, marks.begin() + run.range.end, 1);
  return marks;
}

std::vector<char> owned_elements(Trainer& trainer, Region region) {
  return marks_of(trainer, program::owned_runs(trainer.program(), region, trainer.shard_place()));
}

/// One to one in `bits`.
std::uint32_t folded(std::uint32_t digest, std::uint32_t bits) {
  digest = (digest ^ bits) * 0x9e3779b1U;
  return digest ^ digest >> 15;
}

double number_of(DType dtype, std::int64_t bits) {
  if (dtype == DType::F64) return std::bit_cast<double>(bits);
  if (dtype == DType::F32) return double{std::bit_cast<float>(static_cast<std::int32_t>(bits))};
  if (dtype == DType::BF16)
    return double{std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16)};
  return static_cast<double>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
}

/// What a rank has of one element.
struct HeldBits {
  std::int64_t held = 0;
  std::int64_t bits = 0;
};

/// The first rank that holds the element beside the others. @param copies  by rank
program::BitDifference difference_between(std::string name, std::vector<std::int64_t> where,
                                          DType dtype, const std::vector<HeldBits>& copies) {
  const auto first =
      std::ranges::find_if(copies, [](const HeldBits& copy) { return copy.held != 0; });
  std::vector<std::ptrdiff_t> others;
  for (auto copy = first; copy != copies.end(); ++copy)
    if (copy->held != 0 && copy->bits != first->bits) others.push_back(copy - copies.begin());
  const double expected = number_of(dtype, first->bits);
  const double value = number_of(dtype, copies[static_cast<std::size_t>(others.front())].bits);
  return program::differing_element(
      fmt::format("{}: rank{} {} beside rank {}", name, others.size() == 1 ? "" : "s",
                  fmt::join(others, " "), first - copies.begin()),
      std::move(where), value, expected);
}

std::vector<HeldBits> gather(HeldBits own, Communicator& world) {
  static_assert(sizeof(HeldBits) == 2 * sizeof(std::int64_t));
  std::vector<HeldBits> all(static_cast<std::size_t>(world.size()));
  world.all_gather({&own, 2, DType::I64}, {all.data(), 2 * std::ssize(all), DType::I64}).wait();
  return all;
}

}  // namespace

CopyComparison::CopyComparison(Trainer& trainer, Communicator& world)
    : trainer_(trainer),
      world_(world),
      parameters_(program::lower(program::one_rank_plan(trainer.program().plan), 0).parameters) {
  for (const Parameter& parameter : parameters_) {
    begins_.push_back(elements_);
    elements_ += static_cast<std::size_t>(global_elements(parameter));
  }
  owned_ = owned_elements(trainer, Region::Weights);
  trained_ = owned_elements(trainer, Region::Gradients);
  // Of what all ranks own, what is one element of the model less is a copy.
  for_each_element([&](std::size_t /*element*/, std::size_t local) {
    copied_weights_ += owned_[local];
    copied_trained_ += trained_[local];
  });
  if (world_.rank() == 0)
    for (const Parameter& parameter : parameters_) {
      copied_weights_ -= global_elements(parameter);
      if (!parameter.frozen) copied_trained_ -= global_elements(parameter);
    }
  note(Region::Weights, "start");
}

template <class Function>
void CopyComparison::for_each_element(Function at) const {
  const auto& own = trainer_.program().parameters;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto held = std::ranges::find(own, parameters_[i].name, &Parameter::name);
    if (held == own.end()) continue;
    for (const program::MatrixPiece& piece :
         program::matrix_pieces(*held, trainer_.groups().coordinates()))
      runtime::for_each_element(*held, piece, [&](std::int64_t global, std::int64_t local) {
        at(begins_[i] + static_cast<std::size_t>(global),
           static_cast<std::size_t>(held->offset + local));
      });
  }
}

// ---------------------------------------------------------------- notes

CopyComparison::FlatBits CopyComparison::read(Region region, const std::vector<HeldRun>& runs) {
  const program::Program& program = trainer_.program();
  FlatBits flat(static_cast<std::size_t>(program.parameter_elements));
  const std::int64_t size = program::element_bytes(program, region);
  std::vector<std::int16_t> halves;
  for (const HeldRun& run : runs) {
    const std::int64_t bytes = run.range.size() * size;
    const std::byte* from = trainer_.arena().region(region) + run.offset * size;
    const auto to = flat.begin() + run.range.begin;
    if (bytes == 0) continue;
    if (size == size_of(DType::F32)) {
      trainer_.device().backend().copy_to_host(&*to, from, bytes);
      continue;
    }
    halves.resize(static_cast<std::size_t>(run.range.size()));
    trainer_.device().backend().copy_to_host(halves.data(), from, bytes);
    std::ranges::copy(halves, to);
  }
  return flat;
}

void CopyComparison::note(Region region, const std::string& when) {
  const program::Program& program = trainer_.program();
  const auto runs = program::owned_runs(program, region, trainer_.shard_place());
  program::add_checks(checks_,
                      {{.what = std::string(program::kCopies),
                        .name = std::string(words_for(region)),
                        .checked = region == Region::Weights ? copied_weights_ : copied_trained_}});
  noted_.push_back({region, when, read(region, runs)});
}

void CopyComparison::add_step(const StepOutcome& outcome, const std::string& when) {
  compare_figures(outcome, when);
  note(Region::Gradients, when);
  note(Region::Weights, when);
}

// ---------------------------------------------------------------- comparisons

std::vector<program::ExactCheck> CopyComparison::result(const std::string& when) {
  const program::Plan& plan = trainer_.program().plan;
  if (plan.workload.precision != DType::F32) note(Region::MasterWeights, when);
  note(Region::Moment1, when);
  if (plan.workload.optimizer.kind != program::OptimizerKind::Sgd) note(Region::Moment2, when);
  if (plan.zero_stage > 0 && !plan.offload_parameters) compare_gathered(when);
  FlatBits folds(owned_.size());
  for (const Noted& noted : noted_)
    for (std::size_t i = 0; i < folds.size(); ++i)
      if (owns(noted.region, i))
        folds[i] = std::bit_cast<std::int32_t>(folded(std::bit_cast<std::uint32_t>(folds[i]),
                                                      std::bit_cast<std::uint32_t>(noted.flat[i])));
  if (!differing(Region::Weights, folds).empty())
    for (const Noted& noted : noted_) compare_noted(noted);
  return checks_;
}

/// Elements of the model that ranks have apart: the same on all ranks.
std::vector<std::size_t> CopyComparison::differing(Region region, const FlatBits& flat) {
  // The largest bits of each element and, inverted, the smallest ones.
  std::vector<std::int32_t> bounds(2 * elements_, kNotHeld);
  for_each_element([&](std::size_t element, std::size_t local) {
    if (!owns(region, local)) return;
    bounds[element] = flat[local];
    bounds[element + elements_] = ~flat[local];
  });
  const MutableBuffer buffer{bounds.data(), std::ssize(bounds), DType::I32};
  world_.all_reduce(buffer, buffer, ReduceOp::Max).wait();
  std::vector<std::size_t> elements;
  for (std::size_t i = 0; i < elements_; ++i)  // nobody has it: the smallest is above the largest
    if (~bounds[i + elements_] < bounds[i]) elements.push_back(i);
  return elements;
}

void CopyComparison::compare_noted(const Noted& noted) {
  ExactCheck check{.what = std::string(program::kCopies),
                   .name = std::string(words_for(noted.region))};
  std::optional<std::size_t> last;  // one element of each parameter is enough
  for (const std::size_t element : differing(noted.region, noted.flat)) {
    const std::size_t parameter = parameter_of(element);
    if (std::exchange(last, parameter) == parameter) continue;
    HeldBits own;
    for_each_element([&](std::size_t one, std::size_t local) {
      if (one == element && owns(noted.region, local)) own = {1, noted.flat[local]};
    });
    const std::vector<HeldBits> copies = gather(own, world_);
    if (world_.rank() != 0) continue;
    const std::string name = fmt::format("{}, {} of {}", noted.when, words_for(noted.region),
                                         parameters_[parameter].name);
    program::add_difference(check,
                            difference_between(name, place_of(element),
                                               dtype_of(trainer_.program(), noted.region), copies));
  }
  program::add_checks(checks_, {check});
}

void CopyComparison::compare_figures(const StepOutcome& outcome, const std::string& when) {
  std::vector<std::pair<std::string, double>> numbers = {
      {"loss", outcome.loss},
      {"gradient norm", outcome.gradient_norm},
      {"balance loss", outcome.balance_loss},
      {"z-loss", outcome.z_loss},
      {"prediction loss", outcome.prediction_loss},
      {"indexer loss", outcome.indexer_loss}};
  for (std::size_t i = 0; i < outcome.expert_load.size(); ++i)
    numbers.emplace_back(fmt::format("router choices {}", i), double{outcome.expert_load[i]});
  std::vector<std::int64_t> bits;
  for (const auto& [name, value] : numbers) bits.push_back(std::bit_cast<std::int64_t>(value));
  std::vector<std::int64_t> all(bits.size() * static_cast<std::size_t>(world_.size()));
  world_
      .all_gather({bits.data(), std::ssize(bits), DType::I64},
                  {all.data(), std::ssize(all), DType::I64})
      .wait();
  ExactCheck check{.what = std::string(program::kCopies),
                   .name = "loss, norm and router figures",
                   .checked = world_.rank() == 0 ? 0 : std::ssize(bits)};
  for (std::size_t i = 0; world_.rank() == 0 && i < bits.size(); ++i) {
    std::vector<HeldBits> copies;
    for (std::size_t begin = i; begin < all.size(); begin += bits.size())
      copies.push_back({1, all[begin]});
    const bool same = std::ranges::all_of(
        copies, [&](const HeldBits& copy) { return copy.bits == copies.front().bits; });
    if (!same)
      program::add_difference(
          check, difference_between(when + ", " + numbers[i].first, {}, DType::F64, copies));
  }
  program::add_checks(checks_, {check});
}

/// What a rank has gathered of weights that others own is what these had when the step began.
void CopyComparison::compare_gathered(const std::string& when) {
  const program::Program& program = trainer_.program();
  const auto weights = [](const Noted& noted) { return noted.region == Region::Weights; };
  const auto end = std::ranges::find_if(noted_.rbegin(), noted_.rend(), weights);
  const FlatBits& begin = std::find_if(std::next(end), noted_.rend(), weights)->flat;
  std::vector<std::int32_t> owners(elements_, kNotHeld);
  for_each_element([&](std::size_t element, std::size_t local) {
    if (owns(Region::Weights, local)) owners[element] = begin[local];
  });
  const MutableBuffer buffer{owners.data(), std::ssize(owners), DType::I32};
  world_.all_reduce(buffer, buffer, ReduceOp::Max).wait();
  const auto runs = program::held_runs(program, Region::Weights, trainer_.shard_place());
  const FlatBits held = read(Region::Weights, runs);
  const std::vector<char> holds = marks_of(trainer_, runs);
  const DType dtype = dtype_of(program, Region::Weights);
  ExactCheck check{.what = std::string(program::kCopies), .name = "gathered weights"};
  for_each_element([&](std::size_t element, std::size_t local) {
    if (holds[local] == 0 || owns(Region::Weights, local)) return;
    ++check.checked;
    if (held[local] == owners[element]) return;
    program::add_difference(
        check,
        program::differing_element(
            fmt::format("{}, gathered weights of {}: rank {} beside their owner", when,
                        parameters_[parameter_of(element)].name, world_.rank()),
            place_of(element), number_of(dtype, held[local]), number_of(dtype, owners[element])));
  });
  program::add_checks(checks_, {check});
}

std::size_t CopyComparison::parameter_of(std::size_t element) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(begins_, element) - begins_.begin() - 1);
}

std::vector<std::int64_t> CopyComparison::place_of(std::size_t element) const {
  const std::size_t parameter = parameter_of(element);
  return coordinates_of(static_cast<std::int64_t>(element - begins_[parameter]),
                        parameters_[parameter].global_shape);
}

}  // namespace meshplan::runtime
