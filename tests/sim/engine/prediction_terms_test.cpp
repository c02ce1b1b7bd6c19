#include "sim/engine/prediction_terms.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "models/model_spec.hpp"
#include "program/lower/lower.hpp"
#include "sim/engine/engine.hpp"
#include "sim/run_cases.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/run_terms.hpp"

namespace meshplan::sim {
namespace {

program::Plan small_plan(int global_batch_size) {
  program::Plan plan;
  plan.model = models::load_preset("tiny-llama");
  plan.workload.seq_len = 64;
  plan.workload.precision = DType::F32;
  plan.workload.global_batch_size = global_batch_size;
  return plan;
}

}  // namespace

// Half of the step known to 6 %, all of it to 4 %: sqrt(0.03^2 + 0.04^2).
TEST_CASE("Independent terms add in squares", "[sim][prediction]") {
  const std::vector<PredictionTerm> terms{{.seconds = 1, .sigma = 0.06},
                                          {.seconds = 2, .sigma = 0.04}};
  CHECK(relative_sigma_of(terms, 2) == Approx(0.05));
}

TEST_CASE("Terms name what takes the time, the least known first", "[sim][prediction]") {
  TrainingRun run = small_gpt(8);
  run.parallel.tp = 2;
  run.settings.cuda_graphs = program::CudaGraphs::Full;
  const PreparedRun prepared(run);
  const RunPrediction prediction = prepared.predict(constants_of(fitted_constants()));
  const auto terms = terms_of(prediction, run);
  double seconds = 0;
  for (const PredictionTerm& term : terms) {
    INFO(term.name);
    CHECK(term.name != "pipeline");  // there is none
    CHECK(term.name != "host");      // graphs leave nothing to issue
    CHECK_FALSE(term.measure.empty());
    if (term.name == "matrix products" || term.name == "attention" || term.name == "streams" ||
        term.name == "kernel starts")
      seconds += term.seconds;
  }
  CHECK(seconds == Approx(prediction.seconds.compute));
  for (std::size_t i = 1; i < terms.size(); ++i)
    CHECK(terms[i - 1].seconds * terms[i - 1].sigma >= terms[i].seconds * terms[i].sigma);
  CHECK(prediction.relative_sigma == relative_sigma_of(terms, prediction.step_time_s));
}

// A step of w (1 + j log2 n) + o: with j known to s, its logarithm is known to about s log2(n) w /
// t.
TEST_CASE("Constants that are not well known widen the interval", "[sim][prediction]") {
  TrainingRun run = small_gpt(8);
  run.parallel.dp = 8;
  const PreparedRun prepared(run);
  const Constants constants = constants_of(fitted_constants());
  Constants sigmas;
  for (const NamedMember<Constants>& constant : constant_members()) sigmas.*constant.member = 0;
  const RunPrediction exact = prepared.predict(constants, sigmas);
  CHECK(exact.constants_sigma == 0);
  CHECK(exact.relative_sigma == prepared.predict(constants).relative_sigma);
  sigmas.jitter = 0.001;
  const RunPrediction wide = prepared.predict(constants, sigmas);
  const double overhead = constants.step_overhead_ms / 1000;
  const double work = (exact.step_time_s - overhead) / (1 + 3 * constants.jitter);
  CHECK(wide.constants_sigma == Approx(std::log1p(0.003 * work / exact.step_time_s)));
  CHECK(wide.relative_sigma > exact.relative_sigma);
}

/// Terms of llama3-8b's first four layers over the eight devices of a node.
std::vector<PredictionTerm> terms_on(const std::string& preset) {
  program::Plan plan = small_plan(8);
  plan.model = models::load_preset("llama3-8b");
  plan.model.num_layers = 4;
  plan.workload.seq_len = 4096;
  plan.workload.precision = DType::BF16;
  plan.parallel = {.tp = 8, .sp = true};
  const Cluster cluster = with_ranks(load_cluster_preset(preset), 8);
  return simulate_step(plan, cluster).terms;
}

double sigma_of(const std::vector<PredictionTerm>& terms, std::string_view name,
                TermSource source) {
  for (const PredictionTerm& term : terms)
    if (term.name == name && term.source == source) return term.sigma;
  return 0;
}

// H100's operators were timed, B300's generation's were, and none of AMD's.
TEST_CASE("What no operator was timed for is less well known", "[sim][prediction]") {
  const auto h100 = terms_on("dgx-h100");
  const auto b300 = terms_on("dgx-b300");
  const auto mi300x = terms_on("8x-mi300x");
  const auto products = [](const auto& terms, TermSource source) {
    return sigma_of(terms, "matrix products", source);
  };
  CHECK(products(h100, TermSource::Measured) > 0);
  CHECK(products(h100, TermSource::DataSheet) == 0);
  CHECK(products(b300, TermSource::Interpolated) > 2 * products(h100, TermSource::Measured));
  CHECK(products(mi300x, TermSource::Interpolated) == 0);
  CHECK(products(mi300x, TermSource::DataSheet) > 2 * products(b300, TermSource::Interpolated));
  const auto exchange = [](const auto& terms) {
    return sigma_of(terms, "tensor, context and expert exchange", TermSource::DataSheet);
  };
  CHECK(exchange(mi300x) > exchange(h100));
}

TEST_CASE("Runs of other software on such a device are less well known", "[sim][prediction]") {
  TrainingRun run = small_gpt(8);
  run.parallel.dp = 8;
  const Constants constants = constants_of(fitted_constants());
  Constants sigmas;
  for (const NamedMember<Constants>& constant : constant_members()) sigmas.*constant.member = 0;
  run.cluster = "8x-mi300x";
  const RunPrediction prediction = PreparedRun(run).predict(constants, sigmas);
  CHECK(prediction.constants_sigma == Approx(0.25));
}

// One rank computes without a break, so its computation is the step; nothing was timed on this
// host.
TEST_CASE("A plan's terms say what their prices rest on", "[sim][prediction]") {
  const program::Plan plan = small_plan(2);
  const Cluster cluster = with_ranks(load_cluster_preset("cpu-host"), 1);
  const SimulationResult played = simulate(program::lower_all(plan), cluster);
  const auto terms =
      terms_of(program::lower(plan, 0), cluster, mean_of(played.breakdown), played.step_time_s);
  double computing = 0;
  for (const PredictionTerm& term : terms) {
    INFO(term.name);
    CHECK(term.source != TermSource::Measured);
    if (term.source != TermSource::DataSheet) continue;
    CHECK(term.measure.find("calibrate") != std::string_view::npos);
    computing += term.seconds;
  }
  CHECK(computing == Approx(played.step_time_s).epsilon(0.02));
}

// NCCL is for GPUs: what CPU ranks exchange is measured by calibration.
TEST_CASE("A plan's terms name a measurement that its cluster can do", "[sim][prediction]") {
  program::Plan plan = small_plan(4);
  plan.parallel = {.tp = 2, .pp = 2, .dp = 2};
  const auto names = [&](const char* preset, std::string_view tool) {
    const Cluster cluster = with_ranks(load_cluster_preset(preset), plan.parallel.world_size());
    const SimulationResult played = simulate(program::lower_all(plan), cluster);
    int named = 0;
    for (const PredictionTerm& term :
         terms_of(program::lower(plan, 0), cluster, mean_of(played.breakdown), played.step_time_s))
      if (term.measure.find(tool) != std::string_view::npos) ++named;
    return named;
  };
  CHECK(names("cpu-host", "nccl-tests") == 0);
  CHECK(names("cpu-host", "sends between") == 0);
  CHECK(names("dgx-h100", "nccl-tests") == 2);
}

}  // namespace meshplan::sim
