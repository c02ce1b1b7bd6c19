#include "sim/engine/prediction_terms.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "engine/compute_classes.hpp"
#include "engine/term_sigmas.hpp"
#include "program/plan/mesh.hpp"
#include "sim/engine/extrapolation.hpp"
#include "sim/prices/operator_constants.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

constexpr std::string_view kCalibrate = "meshplan calibrate on this machine";
constexpr std::string_view kCalibrateSizes = "samples of this size: meshplan calibrate";
constexpr std::string_view kNcclTests = "nccl-tests of these groups, or meshplan calibrate";

/// Prices of one class of operations that rest on samples of quite another size.
struct FarSeconds {
  double all = 0;    // of the class, each operation alone
  double far = 0;    // of those among them whose samples are far off
  double sigma = 0;  // sum over the far ones of seconds times sigma: they err together

  /// @param times  that the operation runs in a step
  void add(const Price& price, double times) {
    all += times * price.seconds;
    if (price.sizes.beyond() <= kFarBeyond) return;
    far += times * price.seconds;
    sigma += times * price.seconds * extrapolation_sigma(price.sizes.beyond());
  }
  /// Splits a term: what is far off, and the rest. @param name  of the former
  void divide(PredictionTerm term, std::string_view name,
              std::vector<PredictionTerm>& terms) const {
    const double share = all > 0 ? far / all : 0;
    if (share > 0)
      terms.push_back(
          {name, term.seconds * share, sigma / far, TermSource::Assumed, kCalibrateSizes});
    term.seconds *= 1 - share;
    terms.push_back(term);
  }
};

/// What formulas of a device's operators rest on.
struct FormulaBasis {
  TermSource source = TermSource::Interpolated;
  double sigma = 0;  // of all its operators together
};

FormulaBasis formula_basis(const Device& device) {
  if (!is_measured(device.architecture)) return {TermSource::DataSheet, kGenerationSigma};
  return {TermSource::Interpolated, device.operators.empty() ? kDeviceSigma : 0.0};
}

/// Computation of one class of operations, by the source of their prices.
struct ClassSeconds {
  std::string_view name;
  double fitted_sigma = 0;  // on a GPU, whose formulas hold fitted constants
  double shape_sigma = 0;   // besides, where no shape near it was timed on such a GPU
  std::array<double, 3> by_source{};

  void append_to(std::vector<PredictionTerm>& terms, const Device& device) const {
    const bool gpu = device.kind == DeviceKind::Gpu;
    const auto seconds = [&](PriceSource source) {
      return by_source[static_cast<std::size_t>(source)];
    };
    terms.push_back({name, seconds(PriceSource::Measured), kMeasuredSigma, TermSource::Measured,
                     "more samples on a quiet machine"});
    const double between = seconds(PriceSource::Interpolated);
    const double formula = seconds(PriceSource::Formula);
    if (gpu) {
      terms.push_back({name, between, fitted_sigma, TermSource::Measured, kCalibrate});
      const FormulaBasis basis = formula_basis(device);
      terms.push_back({name, formula, std::hypot(fitted_sigma, shape_sigma, basis.sigma),
                       basis.source, kCalibrate});
    } else {
      terms.push_back({name, between, kBetweenSigma, TermSource::Interpolated, kCalibrate});
      terms.push_back({name, formula, kCpuSheetSigma, TermSource::DataSheet, kCalibrate});
    }
  }
};

}  // namespace

void order(std::vector<PredictionTerm>& terms) {
  std::erase_if(terms, [](const PredictionTerm& term) { return term.seconds * term.sigma <= 0; });
  std::ranges::sort(terms, std::greater{},
                    [](const PredictionTerm& term) { return term.seconds * term.sigma; });
}

std::vector<PredictionTerm> terms_of(const program::Program& program, const Cluster& cluster,
                                     const Breakdown& seconds, double step_time_s) {
  const program::Mesh mesh = program::mesh_of(program.plan);
  const ProgramPrices prices =
      price_program(program, mesh.rank_of({.pp = program.role.stage}), mesh, cluster);
  const bool low = program.plan.workload.fp8 != program::Float8Recipe::None;
  std::array<ClassSeconds, 3> classes{
      {{"matrix products", low ? kLowPrecisionSigma : kProductSigma, kShapeSigma},
       {"attention", kAttentionSigma, kShapeSigma},
       {"streams and the optimizer", kStreamSigma}}};
  FarSeconds compute, exchange_far, pipeline_far, gradients_far;
  const std::vector<double> times = times_run(program);
  for (std::size_t i = 0; i < program.instances.size(); ++i) {
    if (times[i] == 0) continue;
    const auto& instance = program.instances[i];
    const Price& price = prices.of(i);
    const program::Operation& operation = program::operation_of(program, instance);
    if (operation.lane == program::Lane::Dp) gradients_far.add(price, times[i]);
    if (program::exchanges_within_stage(operation.lane)) exchange_far.add(price, times[i]);
    if (std::holds_alternative<program::PeerOp>(operation.work)) pipeline_far.add(price, times[i]);
    if (operation.lane != program::Lane::Compute) continue;
    compute.add(price, times[i]);
    if (price.sizes.beyond() > kFarBeyond) continue;
    classes[static_cast<std::size_t>(compute_class(operation))]
        .by_source[static_cast<std::size_t>(price.source)] += times[i] * price.seconds;
  }
  const bool gpu = cluster.device.kind == DeviceKind::Gpu;
  std::vector<PredictionTerm> terms;
  for (const ClassSeconds& own : classes) own.append_to(terms, cluster.device);
  if (compute.far > 0)
    terms.push_back({"computation far beyond samples", compute.far, compute.sigma / compute.far,
                     TermSource::Assumed, kCalibrateSizes});
  const double exchange =
      seconds[Category::Tp] + seconds[Category::Sp] + seconds[Category::Cp] + seconds[Category::Ep];
  const bool known_links = !gpu || is_measured(cluster.device.architecture);
  const auto of_links = [&](double sigma) {
    return known_links ? sigma : std::hypot(sigma, kGenerationLinksSigma);
  };
  exchange_far.divide({"tensor, context and expert exchange", exchange, of_links(kExchangeSigma),
                       TermSource::DataSheet, gpu ? kNcclTests : kCalibrate},
                      "exchange far beyond samples", terms);
  pipeline_far.divide(
      {"pipeline", seconds[Category::Pp] + seconds[Category::Bubble], of_links(kPipelineSigma),
       TermSource::DataSheet, gpu ? std::string_view("sends between two stages") : kCalibrate},
      "pipeline far beyond samples", terms);
  gradients_far.divide(
      {"gradients and parameters", seconds[Category::Dp], of_links(kDataParallelSigma),
       TermSource::DataSheet, gpu ? kNcclTests : kCalibrate},
      "gradients far beyond samples", terms);
  terms.push_back({"host and waits", seconds[Category::Host] + seconds[Category::Other],
                   kOverheadSigma, TermSource::Assumed, "meshplan run --trace"});
  const double effects =
      with_step_effects(cluster, step_time_s) - step_time_s;  // of a step as long as this one
  const double noise = noise_of(cluster, cluster.devices_per_node) * step_time_s;
  if (noise > 0)
    terms.push_back({"noise of the machine", noise, kNoiseSigma, TermSource::Measured, kCalibrate});
  terms.push_back({"stragglers and overhead", effects - noise, kOverheadSigma, TermSource::Assumed,
                   "a log of step times"});
  if (gpu)
    terms.push_back({"habits of this runtime on a GPU", step_time_s, kStackSigma,
                     TermSource::Assumed, "meshplan run --trace"});
  order(terms);
  return terms;
}

std::string_view name_of(TermSource source) {
  switch (source) {
    case TermSource::Measured:
      return "measured";
    case TermSource::Interpolated:
      return "interpolated";
    case TermSource::DataSheet:
      return "data sheet";
    case TermSource::Assumed:
      return "assumed";
  }
  throw InvariantError("unknown source");
}

double half_width_80(double relative_sigma) {
  return std::expm1(kDeviations80 * relative_sigma);
}

double relative_sigma_of(const std::vector<PredictionTerm>& terms, double step_time_s) {
  double variance = 0;
  for (const PredictionTerm& term : terms)
    variance += std::pow(term.seconds / step_time_s * term.sigma, 2);
  return std::sqrt(variance);
}

Interval interval_of(const std::vector<PredictionTerm>& terms, double step_time_s) {
  return interval_of(relative_sigma_of(terms, step_time_s), step_time_s);
}

Interval interval_of(double relative_sigma, double step_time_s) {
  const double width = half_width_80(relative_sigma);
  return {.low_s = step_time_s / (1 + width), .high_s = step_time_s * (1 + width)};
}

double indistinguishable_s(const std::vector<PredictionTerm>& a,
                           const std::vector<PredictionTerm>& b) {
  std::map<std::pair<std::string_view, TermSource>, double> deviations;  // b's seconds less a's
  for (const PredictionTerm& term : a)
    deviations[{term.name, term.source}] -= term.seconds * term.sigma;
  for (const PredictionTerm& term : b)
    deviations[{term.name, term.source}] += term.seconds * term.sigma;
  double variance = 0;
  for (const auto& [term, deviation] : deviations) variance += deviation * deviation;
  return kDeviations80 * std::sqrt(variance);
}

}  // namespace meshplan::sim
