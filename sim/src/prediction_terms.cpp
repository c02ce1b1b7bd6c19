#include "sim/prediction_terms.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace meshplan::sim {
namespace {

// Relative standard deviations by what a term rests on, chosen so that about 80 % of the runs of
// the development table lie inside their 80 % intervals.
constexpr double kProductSigma = 0.025;
constexpr double kLowPrecisionSigma = 0.05;  // scaling recipes and their kernels change by release
constexpr double kAttentionSigma = 0.05;
constexpr double kStreamSigma = 0.06;
constexpr double kExchangeSigma = 0.15;
constexpr double kHostSigma = 0.085;  // of what the host paces: where it is late it sets the pace
constexpr double kPipelineSigma = 0.15;
constexpr double kDataParallelSigma = 0.3;
constexpr double kOptimizerSigma = 0.3;
constexpr double kOffloadSigma = 0.3;
constexpr double kOverheadSigma = 0.5;
// Repeated measurements of one configuration across releases differ by 1.8 % in the median and 8 %
// at the 90th percentile.
constexpr double kVersionSigma = 0.015;

}  // namespace

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

std::vector<PredictionTerm> terms_of(const RunPrediction& prediction, const TrainingRun& run,
                                     const ExecutionProfile& profile) {
  const RunBreakdown& s = prediction.seconds;
  const bool low = run.precision != RunPrecision::Bf16 && run.precision != RunPrecision::Fp16;
  const double paced = s.host > 0 ? s.compute + s.tensor + s.host : 0;
  const double step = prediction.step_time_s;
  std::vector<PredictionTerm> terms{
      {"matrix products", s.products, low ? kLowPrecisionSigma : kProductSigma,
       TermSource::Interpolated, "a layer's matrix products on one device, at load"},
      {"attention", s.attention, kAttentionSigma, TermSource::Interpolated,
       "the attention kernel at this head size and length"},
      {"streams and kernel starts", s.compute - s.products - s.attention, kStreamSigma,
       TermSource::Interpolated, "a profile of one layer: kernels, and the bytes each moves"},
      {"tensor, context and expert exchange", s.tensor, kExchangeSigma, TermSource::DataSheet,
       "nccl-tests of these groups at these sizes"},
      {"host", paced, kHostSigma, TermSource::Interpolated,
       "the time that this host takes to issue one layer"},
      {"pipeline", s.pipeline, kPipelineSigma, TermSource::DataSheet,
       "sends between two stages, and a trace of the first and last"},
      {"gradients and parameters", s.data_parallel, kDataParallelSigma, TermSource::DataSheet,
       "nccl-tests of the data-parallel group, alone and beside products"},
      {"optimizer", s.optimizer, kOptimizerSigma, TermSource::DataSheet,
       "one optimizer step on one device"},
      {"host memory", s.offload, kOffloadSigma, TermSource::DataSheet,
       "copies between device and host, all devices at once"},
      {"stragglers and overhead", s.overhead, kOverheadSigma, TermSource::Assumed,
       "a log of step times"},
      {"release of the software", step, kVersionSigma, TermSource::Assumed,
       "any run with this release"},
      {"habits of the stack", step, profile.habit_sigma, TermSource::Assumed,
       "a profile of one layer and micro-batch"},
      {"fitted constants", step, prediction.constants_sigma, TermSource::Interpolated,
       "runs on this device that differ from those fitted on"},
  };
  std::erase_if(terms, [](const PredictionTerm& term) { return term.seconds * term.sigma <= 0; });
  std::ranges::sort(terms, std::greater{},
                    [](const PredictionTerm& term) { return term.seconds * term.sigma; });
  return terms;
}

double relative_sigma_of(const std::vector<PredictionTerm>& terms, double step_time_s) {
  double variance = 0;
  for (const PredictionTerm& term : terms)
    variance += std::pow(term.seconds / step_time_s * term.sigma, 2);
  return std::sqrt(variance);
}

}  // namespace meshplan::sim
