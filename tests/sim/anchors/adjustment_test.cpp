#include "sim/anchors/adjustment.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <regex>

#include "core/error.hpp"
#include "sim/run_cases.hpp"

namespace meshplan::sim {
namespace {

using Catch::Matchers::Contains;

/// A run of a model of 24 layers of 4096 on megatron-core.
TrainingRun megatron_run(program::ParallelConfig parallel, int micro_batch_size = 2) {
  TrainingRun run = small_gpt(24);
  run.model.hidden_size = 4096;
  run.model.ffn_size = 16384;
  run.model.num_heads = run.model.num_kv_heads = 32;
  run.model.head_size = 128;
  run.profile = "megatron-core";
  run.cluster = "dgx-h100";
  run.parallel = parallel;
  run.micro_batch_size = micro_batch_size;
  run.global_batch_size = 256;
  run.zero_stage = 1;
  return run;
}

/// With the interval that the fit of the constants leaves.
RunPrediction predict_fully(const PreparedRun& run) {
  return run.predict(constants_of(fitted_constants()), sigmas_of(fitted_constants()));
}

Anchor anchor_at(const TrainingRun& run, double times) {
  const PreparedRun prepared(run);
  const RunPrediction prediction = predict_fully(prepared);
  return {.errors = errors_of(prediction, prepared.run()),
          .source = "a test",
          .measured_s = times * prediction.step_time_s,
          .predicted_s = prediction.step_time_s};
}

Adjustment adjustment_of(std::vector<Anchor> anchors) {
  return {anchored_to(PreparedRun(megatron_run({})).run()), std::move(anchors)};
}

struct BeforeAndAfter {
  RunPrediction before;
  RunPrediction after;
  double ratio() const { return after.step_time_s / before.step_time_s; }
};

BeforeAndAfter corrected_by(const Adjustment& adjustment, const TrainingRun& run) {
  const PreparedRun prepared(run);
  const RunPrediction before = predict_fully(prepared);
  return {.before = before, .after = adjustment.adjusted(before, prepared.run())};
}

const program::ParallelConfig kMeasured{.tp = 2, .pp = 2, .dp = 4, .sp = true};
const program::ParallelConfig kMoreReplicas{.tp = 2, .pp = 2, .dp = 8, .sp = true};
const program::ParallelConfig kOtherLayers{.tp = 4, .pp = 2, .dp = 2, .sp = true};

double total_seconds(const RunBreakdown& s) {
  return s.compute + s.tensor + s.host + s.pipeline + s.data_parallel + s.optimizer + s.offload +
         s.overhead;
}

std::string refusal_of(const std::string& text) {
  try {
    parse_adjustment(text, "adjusted.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto found = text.find(from);
  REQUIRE(found != std::string::npos);
  return text.replace(found, from.size(), to);
}

}  // namespace

TEST_CASE("An anchor that is as predicted changes no step time and narrows intervals",
          "[sim][anchors]") {
  const Adjustment adjustment = adjustment_of({anchor_at(megatron_run(kMeasured), 1)});
  for (const auto& parallel : {kMeasured, kMoreReplicas, kOtherLayers}) {
    const BeforeAndAfter run = corrected_by(adjustment, megatron_run(parallel));
    CHECK(run.ratio() == Approx(1));
    CHECK(run.after.seconds.compute == Approx(run.before.seconds.compute));
    CHECK(run.after.relative_sigma < run.before.relative_sigma);
  }
}

TEST_CASE("The nearer a run is to an anchor, the more it follows", "[sim][anchors]") {
  const Adjustment adjustment = adjustment_of({anchor_at(megatron_run(kMeasured), 1.1)});
  const BeforeAndAfter same = corrected_by(adjustment, megatron_run(kMeasured));
  const BeforeAndAfter alike = corrected_by(adjustment, megatron_run(kMoreReplicas));
  const BeforeAndAfter other = corrected_by(adjustment, megatron_run(kOtherLayers));
  CHECK(same.ratio() == Approx(1.1).margin(0.01));
  CHECK(alike.ratio() < same.ratio());
  CHECK(other.ratio() < alike.ratio());
  CHECK(other.ratio() > 1.005);
  CHECK(same.after.relative_sigma < alike.after.relative_sigma);
  CHECK(alike.after.relative_sigma < other.after.relative_sigma);
}

TEST_CASE("Runs that are all 10 % slower are corrected by so much", "[sim][anchors]") {
  std::vector<Anchor> anchors;
  for (const int dp : {1, 2, 4, 16})
    anchors.push_back(anchor_at(megatron_run({.tp = 2, .pp = 2, .dp = dp, .sp = true}), 1.1));
  for (const int pp : {1, 2, 4})
    anchors.push_back(anchor_at(megatron_run({.tp = 4, .pp = pp, .dp = 2, .sp = true}, 1), 1.1));
  const Adjustment adjustment = adjustment_of(anchors);
  CHECK(corrected_by(adjustment, megatron_run(kMoreReplicas)).ratio() == Approx(1.1).margin(0.015));
}

TEST_CASE("A measurement of twice the time is that configuration's own", "[sim][anchors]") {
  const Adjustment adjustment = adjustment_of({anchor_at(megatron_run(kMeasured), 2)});
  CHECK(corrected_by(adjustment, megatron_run(kMeasured)).ratio() == Approx(2).margin(0.01));
  CHECK(corrected_by(adjustment, megatron_run(kMoreReplicas)).ratio() < 1.04);
}

TEST_CASE("Parts and terms of a corrected step sum to it", "[sim][anchors]") {
  const Adjustment adjustment = adjustment_of({anchor_at(megatron_run(kMeasured), 1.07)});
  for (const auto& parallel : {kMeasured, kMoreReplicas, kOtherLayers}) {
    const PreparedRun prepared(megatron_run(parallel));
    const RunPrediction after = adjustment.adjusted(predict_fully(prepared), prepared.run());
    CHECK(total_seconds(after.seconds) == Approx(after.step_time_s).epsilon(1e-6));
    const auto terms = terms_of(after, prepared.run());
    CHECK(relative_sigma_of(terms, after.step_time_s) == Approx(after.relative_sigma));
  }
}

TEST_CASE("A file of anchors says what it was written with", "[sim][anchors]") {
  const Adjustment adjustment = adjustment_of(
      {anchor_at(megatron_run(kMeasured), 1.07), anchor_at(megatron_run(kOtherLayers), 1.02)});
  const std::string text = to_json(adjustment);
  const Adjustment read = parse_adjustment(text, "adjusted.json");
  CHECK(read.of() == adjustment.of());
  CHECK(to_json(read) == text);
  for (const auto& parallel : {kMeasured, kMoreReplicas, kOtherLayers})
    CHECK(corrected_by(read, megatron_run(parallel)).ratio() ==
          Approx(corrected_by(adjustment, megatron_run(parallel)).ratio()).epsilon(1e-9));
}

TEST_CASE("Factors have the anchor's posterior", "[sim][anchors]") {
  const std::vector<Factor> factors =
      adjustment_of({anchor_at(megatron_run(kMeasured), 1.05)}).factors();
  double gained = 0;
  for (const Factor& factor : factors) {
    INFO(factor.term << ", " << factor.shared_by);
    CHECK(factor.mean > 0);
    CHECK(factor.sigma < factor.prior_sigma);
    gained += factor.mean;
  }
  CHECK(factors.front().term == "matrix products");
  CHECK(factors.front().shared_by == "all runs");
  CHECK(factors.back().shared_by.find("dp4") != std::string::npos);
  CHECK(gained > 0.04);
}

TEST_CASE("A wrong file of anchors is refused with its place", "[sim][anchors]") {
  const std::string text = to_json(adjustment_of({anchor_at(megatron_run(kMeasured), 1.05)}));
  CHECK(refusal_of(text) == "no ConfigError");
  CHECK_THAT(refusal_of(replaced(text, "\"cluster\"", "\"clusters\"")),
             Contains("adjusted.json: clusters: unknown key; did you mean 'cluster'?"));
  CHECK_THAT(refusal_of(replaced(text, "\"term\": \"attention\"", "\"term\": \"attentoin\"")),
             Contains("adjusted.json: anchors[0].terms[1].term") && Contains("attentoin") &&
                 Contains("attention"));
  CHECK_THAT(refusal_of(replaced(text, "\"attention\"", "\"matrix products\"")),
             Contains("anchors[0].terms[1].term: 'matrix products' is given twice"));
  CHECK_THAT(refusal_of(replaced(text, "\"adjusted_s\": ", "\"adjusted_s\": 9")),
             Contains("anchors[0].adjusted_s: 9") && Contains("meshplan adjust"));
  const std::string other_mean = std::regex_replace(
      text, std::regex("\"mean\": [^,]*"), "\"mean\": 7", std::regex_constants::format_first_only);
  CHECK_THAT(refusal_of(other_mean),
             Contains("factors[0].mean: 7") && Contains("but the anchors say"));
  CHECK_THAT(refusal_of(replaced(text, "\"measured_s\": ", "\"measured_s\": -")),
             Contains("anchors[0].measured_s"));
  CHECK_THAT(refusal_of(R"({"schema_version": 1, "cluster": "a", "software": "b", "model": "c",
                            "precision": "bf16", "anchors": [], "factors": []})"),
             Contains("adjusted.json: anchors: is empty"));
}

TEST_CASE("Anchors say nothing of other machines, stacks, models and precisions",
          "[sim][anchors]") {
  const AnchoredTo of = anchored_to(megatron_run(kMeasured));
  CHECK_NOTHROW(require_anchored(of, of, "adjusted.json"));
  AnchoredTo other = of;
  other.cluster = "dgx-a100";
  CHECK_THROWS_WITH(require_anchored(of, other, "adjusted.json"),
                    Contains("adjusted.json: cluster: its anchors ran 'dgx-h100', not 'dgx-a100'"));
  other = of;
  other.software += "@25.09";
  CHECK_THROWS_WITH(require_anchored(of, other, "adjusted.json"),
                    Contains("'megatron-core', not 'megatron-core@25.09'"));
  TrainingRun run = megatron_run(kMeasured);
  run.precision = RunPrecision::Fp8;
  CHECK_THROWS_WITH(require_anchored(of, anchored_to(run), "adjusted.json"),
                    Contains("precision: its anchors ran 'bf16', not 'fp8'"));
}

}  // namespace meshplan::sim
