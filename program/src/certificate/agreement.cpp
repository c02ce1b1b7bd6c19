#include "program/certificate/agreement.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>

#include "certificate/file_number.hpp"
#include "core/coordinates.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
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

/// A file holds no infinity: what is not a number differs by more than any tolerance.
double bounded(double difference) {
  return std::isfinite(difference) ? std::min(difference, limits::kMagnitude) : limits::kMagnitude;
}

bool is_few(const WholeTensor& tensor) {
  constexpr std::size_t kFew = 32;
  return tensor.values.size() < kFew;
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
          .value = file_number(value),
          .expected = file_number(expected)};
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
  compared.where = coordinates_of(static_cast<std::int64_t>(worst), expected.shape);
  compared.value = file_number(tensor.values[worst]);
  compared.expected = file_number(expected.values[worst]);
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
  compared.value = file_number(load[worst]);
  compared.expected = file_number(expected[worst]);
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
  Comparison(const TwinRun& run, const TwinRun& alone, const TwinRun* other,
             const Tolerance& tolerance)
      : run_(run), alone_(alone), other_(other), tolerance_(tolerance) {}

  std::vector<Compared> result() {
    require_invariant(run_.steps.size() == alone_.steps.size(), "two runs of as many steps");
    for (int step = 0; step < num_steps(); ++step) compare_step(step);
    compare_tensors(kGradient, run_.gradients, alone_.gradients,
                    other_ != nullptr ? other_->gradients : NamedTensors{},
                    std::min(tolerance_.relative, tolerance_.most), {});
    if (moves())
      compare_tensors("update", updates_of(run_), updates_of(alone_),
                      other_ != nullptr ? updates_of(*other_) : NamedTensors{},
                      tolerance_.grown(tolerance_.relative, num_steps()), alone_.end);
    return std::move(compared_);
  }

 private:
  bool moves() const { return !alone_.end.empty(); }
  int num_steps() const { return static_cast<int>(alone_.steps.size()); }

  void compare_step(int step) {
    const double loss = tolerance_.grown(tolerance_.loss, step);
    const TwinStep& expected = alone_.steps[at(step)];
    compare_number("loss", step, &TwinStep::loss, loss);
    if (moves())
      compare_number("gradient norm", step, &TwinStep::gradient_norm,
                     tolerance_.grown(tolerance_.relative, step));
    for (const auto& [what, figure] : {std::pair("balance loss", &TwinStep::balance_loss),
                                       std::pair("z-loss", &TwinStep::z_loss),
                                       std::pair("prediction loss", &TwinStep::prediction_loss),
                                       std::pair("indexer loss", &TwinStep::indexer_loss)})
      if (expected.*figure != 0 || run_.steps[at(step)].*figure != 0)
        compare_number(what, step, figure, loss);
    if (!expected.expert_load.empty())
      compared_.push_back(
          compared_choices(step, run_.steps[at(step)].expert_load, expected.expert_load));
  }

  void compare_number(const char* what, int step, double TwinStep::*figure, double tolerance) {
    const double expected = alone_.steps[at(step)].*figure;
    double amplified = 0;
    if (other_ != nullptr)
      amplified = allowed_by(
          compared_number(what, step, expected, other_->steps[at(step)].*figure, 0).difference);
    compared_.push_back(compared_number(what, step, run_.steps[at(step)].*figure, expected,
                                        std::max(tolerance, amplified)));
  }

  /// @param rounding  what rounding alone does to a figure of one rank
  double allowed_by(double rounding) const {
    constexpr double kMost = 0.7;  // a gradient without the part of one of two replicas: 1/sqrt(2)
    if (rounding >= limits::kMagnitude) return 0;  // one rank's is no number
    return std::min(tolerance_.of_rounding * rounding, kMost);
  }

  /// What the norm of a tensor's difference is divided by at least. Few numbers are what
  /// cancellation left more often than many are. A bias's are a sum of the gradients dy of which
  /// its weight's, a sum of dy x, does not cancel with it: x of unit size makes that
  /// sqrt(columns) times as large.
  double least_norm(const std::string& name, const NamedTensors& all, double global) const {
    constexpr double kFloorOfFew = 1e-2;
    constexpr std::string_view kBias = ".bias";
    const WholeTensor& tensor = all.at(name);
    if (!is_few(tensor)) return tolerance_.floor * global;
    const double least = std::max(tolerance_.floor, kFloorOfFew) * global;
    if (!name.ends_with(kBias)) return least;
    const auto weight = all.find(name.substr(0, name.size() - kBias.size()) + ".weight");
    if (weight == all.end() || weight->second.shape.size() != 2) return least;
    const auto columns = static_cast<double>(weight->second.shape[1]);
    return std::max(least, norm_of(weight->second.values) / std::sqrt(columns));
  }

  /// What rounding alone does to each tensor: one rank's difference from the other precision. That
  /// of few numbers may happen to be small, so theirs is at least the largest of all others.
  std::map<std::string, double> rounding_of(const NamedTensors& alone,
                                            const NamedTensors& other) const {
    std::map<std::string, double> rounding;
    if (other.empty()) return rounding;
    double of_many = 0;
    const double global = global_norm(alone);
    for (const auto& [name, tensor] : alone) {
      const double difference =
          compared_tensor("", name, tensor, other.at(name), least_norm(name, alone, global), 0, 0)
              .difference;
      rounding[name] = difference;
      if (!is_few(tensor) && difference < limits::kMagnitude)
        of_many = std::max(of_many, difference);
    }
    for (auto& [name, difference] : rounding)
      if (is_few(alone.at(name))) difference = std::max(difference, of_many);
    return rounding;
  }

  /// @param other    of one rank in the other precision, or none
  /// @param weights  that the tensors were subtracted from, each step rounded to fp32; or none
  void compare_tensors(std::string_view what, const NamedTensors& own, const NamedTensors& expected,
                       const NamedTensors& other, double tolerance, const NamedTensors& weights) {
    const double roundoff =
        2 * std::sqrt(2.0 * num_steps()) * kRoundingError * unit_roundoff(DType::F32);
    const std::map<std::string, double> rounding = rounding_of(expected, other);
    const double global = global_norm(expected);
    for (const auto& [name, tensor] : expected) {
      const auto weight = weights.find(name);
      const auto rounded = rounding.find(name);
      const double allowance =
          weight == weights.end() ? 0 : roundoff * norm_of(weight->second.values);
      const double allowed =
          rounded == rounding.end() ? tolerance : std::max(tolerance, allowed_by(rounded->second));
      compared_.push_back(compared_tensor(std::string(what), name, own.at(name), tensor,
                                          least_norm(name, expected, global), allowed, allowance));
    }
  }

  const TwinRun& run_;
  const TwinRun& alone_;
  const TwinRun* other_;
  const Tolerance& tolerance_;
  std::vector<Compared> compared_;
};

}  // namespace

double Compared::share() const {
  if (tolerance > 0) return difference / tolerance;
  return difference > 0 ? limits::kMagnitude : 0;
}

std::vector<Compared> compare(const TwinRun& run, const TwinRun& alone, const Tolerance& tolerance,
                              const TwinRun* other) {
  return Comparison(run, alone, other, tolerance).result();
}

}  // namespace meshplan::program
