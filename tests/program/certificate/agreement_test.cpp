// Two runs agree where only the order of sums differs, and differ where a number does.
#include "program/certificate/agreement.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "core/json_fields.hpp"
#include "program/certificate/certificate.hpp"
#include "program/certificate/twin.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

const Tolerance kTolerance{.relative = 1e-5, .loss = 1e-5, .floor = 1e-4, .growth = 2};

TwinRun some_run() {
  const TwinStep step{.loss = 4, .gradient_norm = 2, .balance_loss = 0.5, .expert_load = {3, 1}};
  TwinRun run{.steps = {step, step, step}};
  run.gradients = {{"a", {{2, 2}, {1, -2, 3, 4}}}, {"b", {{2}, {1e-9, -1e-9}}}};
  run.start = {{"a", {{2, 2}, {0, 0, 0, 0}}}, {"b", {{2}, {1, 1}}}};
  run.end = {{"a", {{2, 2}, {0.1, 0.2, 0.3, 0.4}}}, {"b", {{2}, {1.25, 0.75}}}};
  return run;
}

/// The only figure that differs.
Compared only_difference(const TwinRun& run) {
  std::vector<Compared> differ;
  for (const Compared& compared : compare(run, some_run(), kTolerance))
    if (!compared.agrees()) differ.push_back(compared);
  REQUIRE(differ.size() == 1);
  return differ.front();
}

}  // namespace

TEST_CASE("equal runs agree in everything that is compared", "[certificate]") {
  const std::vector<Compared> compared = compare(some_run(), some_run(), kTolerance);
  // Loss, norm, balance loss and choices of three steps; two gradients, two updates.
  CHECK(compared.size() == 4 * 3 + 2 + 2);
  for (const Compared& one : compared) {
    CHECK(one.agrees());
    CHECK(one.difference == 0);
    CHECK(one.share() == 0);
  }
}

TEST_CASE("the place of the largest difference is named with both values", "[certificate]") {
  TwinRun run = some_run();
  run.gradients.at("a").values[2] = 3.5;
  const Compared differs = only_difference(run);
  CHECK(differs.what == "gradient");
  CHECK(differs.name == "a");
  CHECK(differs.where == std::vector<std::int64_t>{1, 0});
  CHECK(differs.value == 3.5);
  CHECK(differs.expected == 3);
  CHECK(differs.difference == Approx(0.5 / std::sqrt(30.0)));
}

TEST_CASE("what cancellation left is measured by the whole gradient", "[certificate]") {
  TwinRun run = some_run();
  run.gradients.at("b").values = {-1e-9, 1e-9};  // far below 1e-4 of the norm
  CHECK(compare(run, some_run(), kTolerance).size() == 16);
  for (const Compared& one : compare(run, some_run(), kTolerance)) CHECK(one.agrees());
  run.gradients.at("b").values = {1e-7, -1e-9};  // 2e-4 of what counts, 1e-4 of the norm
  CHECK(only_difference(run).name == "b");
}

TEST_CASE("losses and norms may differ by their tolerance, later ones by more", "[certificate]") {
  TwinRun run = some_run();
  run.steps[0].loss = 4 * (1 + 0.9e-5);
  run.steps[1].loss = 4 * (1 + 1.9e-5);
  run.steps[2].loss = 4 * (1 + 3.9e-5);
  for (const Compared& one : compare(run, some_run(), kTolerance)) CHECK(one.agrees());
  run.steps[2].loss = 4 * (1 + 4.1e-5);
  CHECK(only_difference(run).name == "step 3");
}

TEST_CASE("a choice of a router that moved is a difference", "[certificate]") {
  TwinRun run = some_run();
  run.steps[1].expert_load = {2, 2};
  const Compared differs = only_difference(run);
  CHECK(differs.what == "router choices");
  CHECK(differs.difference == 0.25);
  CHECK(differs.share() > 1);
}

TEST_CASE("an update is measured by how far the weight moved", "[certificate]") {
  TwinRun run = some_run();
  run.end.at("b").values[0] = 1.2499;  // the weight changes by 8e-5, its way by 3e-4
  const Compared differs = only_difference(run);
  CHECK(differs.what == "update");
  CHECK(differs.difference == Approx(1e-4 / std::sqrt(0.125)).epsilon(1e-6));
  CHECK(differs.value == Approx(0.2499));
}

TEST_CASE("what is no number differs, and is written as such", "[certificate]") {
  TwinRun run = some_run();
  run.gradients.at("a").values[1] = kNoNumber;
  Compared differs = only_difference(run);
  CHECK(differs.where == std::vector<std::int64_t>{0, 1});
  CHECK(!differs.value);
  run = some_run();
  run.steps[2].loss = kNoNumber;
  differs = only_difference(run);
  CHECK(std::isfinite(differs.difference));

  const TwinResult result{.plan = test::make_plan(test::llama_style()),
                          .techniques = {"tp"},
                          .ranks = 2,
                          .steps = 3,
                          .seeds = {7, 8},
                          .tolerance = kTolerance,
                          .compared = {differs}};
  const std::vector<TwinResult> read = parse_twin_results(to_json(std::vector{result}), "record");
  REQUIRE(read.size() == 1);
  CHECK(read.front().plan == parse_twin_results(to_json(read), "record").front().plan);
  CHECK(read.front().seeds == result.seeds);
  CHECK(read.front().compared.front().difference == differs.difference);
  CHECK(!read.front().compared.front().value);
  CHECK(!read.front().agrees());
}

TEST_CASE("a certificate says what it is of and what it found", "[certificate]") {
  const Plan plan = test::make_plan(test::llama_style(), {.tp = 2});
  TwinResult twin{.plan = plan,
                  .techniques = {"tp"},
                  .ranks = 2,
                  .steps = 3,
                  .seeds = {7},
                  .tolerance = kTolerance,
                  .compared = compare(some_run(), some_run(), kTolerance)};
  Certificate certificate{.version = "1.2",
                          .plan_hash = plan_hash(plan),
                          .plan_precision = "bf16",
                          .compared_in = "fp32",
                          .twins = {twin}};
  CHECK(certificate.agrees());
  Json written = Json::parse(to_json(certificate));
  CHECK(written.at("verdict") == "agrees");
  CHECK(written.at("meshplan_version") == "1.2");
  CHECK(written.at("plan_hash") == plan_hash(plan));
  CHECK(written.at("twins").at(0).at("plan").at("parallel").at("tp") == 2);
  CHECK(written.at("twins").at(0).at("compared").size() == 16);
  CHECK(!written.at("not_shown").empty());
  Plan other = plan;
  other.micro_batch_size = 2;
  CHECK(plan_hash(other) != plan_hash(plan));

  certificate.twins.front().compared.front().difference = 1;
  CHECK(Json::parse(to_json(certificate)).at("verdict") == "differs");
  CHECK(furthest(certificate.twins.front().compared)->what == "loss");
  certificate.twins.front().compared.clear();
  CHECK(!certificate.agrees());  // nothing compared is no agreement
  certificate = {.failure = "a rank ended"};
  CHECK(!certificate.agrees());
}

TEST_CASE("the tolerance bounds what another order of sums changes", "[certificate]") {
  // Sums of n products in fp32, forwards and backwards, as often as a gradient passes tensors.
  const Plan plan = test::make_plan(test::llama_style(), {.tp = 2});
  const Tolerance tolerance = tolerance_of(plan);
  CHECK(tolerance.relative > 1e-6);
  CHECK(tolerance.relative < 5e-5);
  std::mt19937 random(3);  // NOLINT: the same numbers every time
  std::normal_distribution<float> normal;
  const int n = 300, kSums = 200;
  double squares = 0, differences = 0;
  for (int i = 0; i < kSums; ++i) {
    std::vector<float> terms(n);
    for (float& term : terms) term = normal(random);
    float forwards = 0, backwards = 0;
    for (int k = 0; k < n; ++k) {
      forwards += terms[static_cast<std::size_t>(k)];
      backwards += terms[static_cast<std::size_t>(n - 1 - k)];
    }
    squares += std::pow(double{forwards}, 2);
    differences += std::pow(double{forwards} - double{backwards}, 2);
  }
  const double one_tensor = std::sqrt(differences / squares);
  // The formula without its margin, for one tensor: sqrt(2 n) 0.4 u.
  const double formula = std::sqrt(2.0 * n) * 0.4 * 0x1p-24;
  CHECK(one_tensor <= formula);
  CHECK(one_tensor >= formula / 10);
}

TEST_CASE("a longer sum, more layers and a coarser format have a larger tolerance",
          "[certificate]") {
  Plan plan = test::make_plan(test::llama_style(), {.tp = 2});
  const double base = tolerance_of(plan).relative;
  Plan longer = plan;
  longer.workload.global_batch_size *= 16;
  CHECK(tolerance_of(longer).relative > base);
  Plan deeper = plan;
  deeper.model.num_layers *= 4;
  CHECK(tolerance_of(deeper).relative == Approx(2 * base));
  plan.workload.precision = DType::BF16;
  CHECK(tolerance_of(plan).relative > 100 * base);
  CHECK_THAT(tolerance_of(plan).derivation, Catch::Contains("bf16"));
}

}  // namespace meshplan::program
