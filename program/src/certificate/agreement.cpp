#include "program/certificate/agreement.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "core/limits.hpp"

namespace meshplan::program {
namespace {

double norm_of(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

double global_norm(const NamedTensors& tensors) {
  double squares = 0;
  for (const auto& [name, tensor] : tensors) squares += std::pow(norm_of(tensor.values), 2);
  return std::sqrt(squares);
}

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// A file holds no infinity: what is not a number differs by more than any tolerance.
double bounded(double difference) {
  return std::isfinite(difference) ? difference : limits::kMagnitude;
}

std::vector<std::int64_t> place_of(std::size_t element, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> place(shape.size());
  auto rest = static_cast<std::int64_t>(element);
  for (std::size_t i = shape.size(); i-- > 0;) {
    place[i] = rest % shape[i];
    rest /= shape[i];
  }
  return place;
}

/// The element that differs most; one that is no number differs more than any.
std::size_t worst_element(const std::vector<double>& a, const std::vector<double>& b) {
  std::size_t worst = 0;
  double most = -1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return i;
    if (difference > most) {
      most = difference;
      worst = i;
    }
  }
  return worst;
}

Compared compared_number(std::string what, int step, double value, double expected,
                         double tolerance) {
  const double difference = expected == 0 ? std::abs(value) : std::abs(value / expected - 1);
  return {.what = std::move(what),
          .name = fmt::format("step {}", step + 1),
          .difference = bounded(difference),
          .tolerance = tolerance,
          .value = finite(value),
          .expected = finite(expected)};
}

/// @param least  what the norm of a difference is divided by at least
/// @param allowance  absolute, beside the tolerance
Compared compared_tensor(std::string what, const std::string& name, const WholeTensor& tensor,
                         const WholeTensor& expected, double least, double tolerance,
                         double allowance) {
  require_invariant(tensor.values.size() == expected.values.size(), "one parameter, two sizes");
  std::vector<double> difference = tensor.values;
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= expected.values[i];
  const double size =
      std::max({norm_of(expected.values), least, std::numeric_limits<double>::min()});
  Compared compared{.what = std::move(what),
                    .name = name,
                    .difference = bounded(norm_of(difference) / size),
                    .tolerance = tolerance + allowance / size};
  if (difference.empty()) return compared;
  const std::size_t worst = worst_element(tensor.values, expected.values);
  compared.where = place_of(worst, expected.shape);
  compared.value = finite(tensor.values[worst]);
  compared.expected = finite(expected.values[worst]);
  return compared;
}

/// Tokens that chose each expert of a step: exactly the same.
Compared compared_choices(int step, const std::vector<float>& load,
                          const std::vector<float>& expected) {
  require_invariant(load.size() == expected.size(), "one router, two sizes");
  Compared compared{.what = "router choices", .name = fmt::format("step {}", step + 1)};
  double moved = 0, all = 0;
  for (std::size_t i = 0; i < load.size(); ++i) {
    moved += std::abs(double{load[i]} - double{expected[i]}) / 2;
    all += expected[i];
  }
  compared.difference = bounded(moved / std::max(all, 1.0));
  const std::size_t worst =
      worst_element({load.begin(), load.end()}, {expected.begin(), expected.end()});
  compared.where = {static_cast<std::int64_t>(worst)};
  compared.value = finite(load[worst]);
  compared.expected = finite(expected[worst]);
  return compared;
}

NamedTensors updates_of(const TwinRun& run) {
  NamedTensors updates = run.end;
  for (auto& [name, tensor] : updates) {
    const std::vector<double>& start = run.start.at(name).values;
    for (std::size_t i = 0; i < start.size(); ++i) tensor.values[i] -= start[i];
  }
  return updates;
}

class Comparison {
 public:
  Comparison(const TwinRun& run, const TwinRun& alone, const Tolerance& tolerance)
      : run_(run), alone_(alone), tolerance_(tolerance) {}

  std::vector<Compared> result() {
    require_invariant(run_.steps.size() == alone_.steps.size(), "two runs of as many steps");
    for (std::size_t step = 0; step < alone_.steps.size(); ++step)
      compare_step(static_cast<int>(step), run_.steps[step], alone_.steps[step]);
    compare_tensors("gradient", run_.gradients, alone_.gradients, tolerance_.relative, {});
    if (moves())
      compare_tensors("update", updates_of(run_), updates_of(alone_),
                      tolerance_.grown(tolerance_.relative, num_steps()), alone_.end);
    return std::move(compared_);
  }

 private:
  bool moves() const { return !alone_.end.empty(); }
  int num_steps() const { return static_cast<int>(alone_.steps.size()); }

  void compare_step(int step, const TwinStep& own, const TwinStep& expected) {
    const double loss = tolerance_.grown(tolerance_.loss, step);
    compared_.push_back(compared_number("loss", step, own.loss, expected.loss, loss));
    if (moves())
      compared_.push_back(compared_number("gradient norm", step, own.gradient_norm,
                                          expected.gradient_norm,
                                          tolerance_.grown(tolerance_.relative, step)));
    if (expected.balance_loss != 0 || own.balance_loss != 0)
      compared_.push_back(
          compared_number("balance loss", step, own.balance_loss, expected.balance_loss, loss));
    if (expected.z_loss != 0 || own.z_loss != 0)
      compared_.push_back(compared_number("z-loss", step, own.z_loss, expected.z_loss, loss));
    if (!expected.expert_load.empty())
      compared_.push_back(compared_choices(step, own.expert_load, expected.expert_load));
  }

  /// @param weights  that the tensors were subtracted from, each step rounded to fp32; or none
  void compare_tensors(const char* what, const NamedTensors& own, const NamedTensors& expected,
                       double tolerance, const NamedTensors& weights) {
    constexpr double kRootMeanSquare = 0.4;
    const double least = tolerance_.floor * global_norm(expected);
    const double roundoff =
        2 * std::sqrt(2.0 * num_steps()) * kRootMeanSquare * unit_roundoff(DType::F32);
    for (const auto& [name, tensor] : expected) {
      const auto weight = weights.find(name);
      const double allowance =
          weight == weights.end() ? 0 : roundoff * norm_of(weight->second.values);
      compared_.push_back(
          compared_tensor(what, name, own.at(name), tensor, least, tolerance, allowance));
    }
  }

  const TwinRun& run_;
  const TwinRun& alone_;
  const Tolerance& tolerance_;
  std::vector<Compared> compared_;
};

}  // namespace

double Compared::share() const {
  if (tolerance > 0) return difference / tolerance;
  return difference > 0 ? limits::kMagnitude : 0;
}

std::vector<Compared> compare(const TwinRun& run, const TwinRun& alone,
                              const Tolerance& tolerance) {
  return Comparison(run, alone, tolerance).result();
}

}  // namespace meshplan::program
