#include "sim/stacks/run_terms.hpp"

#include "engine/term_sigmas.hpp"

namespace meshplan::sim {

std::array<PredictionTerm, kNumRunTerms> run_terms(const RunPrediction& prediction,
                                                   const TrainingRun& run) {
  const RunBreakdown& s = prediction.seconds;
  const bool low = run.precision != RunPrecision::Bf16 && run.precision != RunPrecision::Fp16;
  const double paced = s.host > 0 ? s.compute + s.tensor + s.host : 0;
  const double step = prediction.step_time_s;
  return {{
      {"matrix products", s.products, low ? kLowPrecisionSigma : kProductSigma,
       TermSource::Interpolated, "a layer's matrix products on one device, at load"},
      {"attention", s.attention, kAttentionSigma, TermSource::Interpolated,
       "the attention kernel at this head size and length"},
      {"streams", s.compute - s.products - s.attention - s.starts, kStreamSigma,
       TermSource::Interpolated, "a profile of one layer: the bytes that each kernel moves"},
      {"kernel starts", s.starts, kStartSigma, TermSource::Interpolated,
       "a profile of one layer: how many kernels, and what lies between them"},
      {"tensor and context communication", s.tensor - s.experts, kExchangeSigma,
       TermSource::DataSheet, "nccl-tests of these groups at these sizes"},
      {"exchange of experts", s.experts,
       prediction.experts_across_nodes ? kExpertsAcrossSigma : kExpertsInsideSigma,
       TermSource::Interpolated, "the dispatcher alone on these nodes (DeepEP, tests/)"},
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
      {"habits of the stack and machine", step, kStackSigma, TermSource::Assumed,
       "a profile of one layer and micro-batch"},
      {"fitted constants", step, prediction.constants_sigma, TermSource::Interpolated,
       "runs on this device that differ from those fitted on"},
  }};
}

std::string_view name_of(RunTerm term) {
  static const auto kTerms = run_terms({}, {});
  return kTerms[static_cast<std::size_t>(term)].name;
}

std::vector<PredictionTerm> terms_of(const RunPrediction& prediction, const TrainingRun& run) {
  const auto all = run_terms(prediction, run);
  std::vector<PredictionTerm> terms(all.begin(), all.end());
  for (std::size_t i = 0; i < prediction.narrowed.size(); ++i)
    terms[i].sigma *= prediction.narrowed[i];
  order(terms);
  return terms;
}

}  // namespace meshplan::sim
