// Two runs agree where only the order of sums differs, and differ where a number does.
#include "program/certificate/agreement.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <set>

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
  run.gradients.at("b").values = {1e-7, -1e-9};  // few numbers count as 1e-2 of the norm
  for (const Compared& one : compare(run, some_run(), kTolerance)) CHECK(one.agrees());
  run.gradients.at("b").values = {1e-6, -1e-9};  // 2e-5 of that
  CHECK(only_difference(run).name == "b");
}

TEST_CASE("many numbers that cancellation left are measured by less of it", "[certificate]") {
  TwinRun alone = some_run(), run = some_run();
  alone.gradients["many"] = {.shape = {64}, .values = std::vector<double>(64, 1e-9)};
  run.gradients["many"] = {.shape = {64}, .values = std::vector<double>(64, 1e-9)};
  run.gradients.at("many").values[3] = 1e-9 + 4e-9;  // 7e-6 of 1e-4 of the norm
  for (const Compared& one : compare(run, alone, kTolerance)) CHECK(one.agrees());
  run.gradients.at("many").values[3] = 1e-9 + 1e-8;
  const auto differ = [&](const Compared& one) { return !one.agrees(); };
  const std::vector<Compared> compared = compare(run, alone, kTolerance);
  REQUIRE(std::ranges::count_if(compared, differ) == 1);
  CHECK(std::ranges::find_if(compared, differ)->name == "many");
}

TEST_CASE("few numbers of a bias are measured by its weight", "[certificate]") {
  const auto run_with = [](double bias) {
    TwinRun run = some_run();
    run.gradients = {{"head.bias", {{2}, {bias, -bias}}},
                     {"head.weight", {{2, 16}, std::vector<double>(32, 0.5)}},
                     {"norm.weight", {{2}, {bias, -bias}}}};
    return run;
  };
  // The weight's norm is sqrt(8), over sqrt(16) columns: 0.7; the norms of others count as 0.028.
  const TwinRun alone = run_with(1e-3);
  const auto differ = [&](double bias) {
    std::set<std::string> names;
    for (const Compared& one : compare(run_with(bias), alone, kTolerance))
      if (!one.agrees()) names.insert(one.name);
    return names;
  };
  CHECK(differ(1e-3 + 4e-6) == std::set<std::string>{"norm.weight"});
  CHECK(differ(1e-3 + 6e-6) == std::set<std::string>{"head.bias", "norm.weight"});
}

TEST_CASE("rounding that leaves no number allows nothing, and no rounding allows all",
          "[certificate]") {
  Tolerance tolerance = kTolerance;
  tolerance.of_rounding = 2.83;
  const auto differ = [&](const TwinRun& run, const TwinRun& alone, const TwinRun& exact) {
    std::set<std::string> names;
    for (const Compared& one : compare(run, alone, tolerance, &exact))
      if (!one.agrees()) names.insert(one.what + " " + one.name);
    return names;
  };
  // One rank overflows, and so do many.
  TwinRun alone = some_run();
  alone.gradients["many"] = {.shape = {64}, .values = std::vector<double>(64, 1)};
  const TwinRun exact = alone;
  alone.gradients.at("many").values[7] = std::numeric_limits<double>::infinity();
  alone.steps[1].loss = kNoNumber;
  CHECK(differ(alone, alone, exact) == std::set<std::string>{"gradient many", "loss step 2"});
  // Rounding turns a gradient around: leaving it out still is a difference.
  TwinRun rounded = some_run();
  rounded.gradients.at("a").values = {-1, 2, -3, -4};
  TwinRun without = rounded;
  without.gradients.at("a").values = {0, 0, 0, 0};
  CHECK(differ(without, rounded, some_run()) == std::set<std::string>{"gradient a"});
}

TEST_CASE("numbers that no file can hold do not make a certificate unreadable", "[certificate]") {
  TwinRun run = some_run();
  run.gradients.at("a").values = {3e-31, -1e-40, 1e35, 4};
  TwinResult result{.plan = test::make_plan(test::llama_style()),
                    .ranks = 1,
                    .steps = 1,
                    .compared = compare(run, some_run(), kTolerance)};
  CHECK(parse_twin_results(to_json(std::vector{result}), "file").front().compared.size() ==
        result.compared.size());
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
  CHECK(written.at("furthest_gradient").at("twin") == 1);
  CHECK(written.at("furthest_gradient").at("name") == "a");
  CHECK(written.at("not_shown").at(1) ==
        "kernels and communication of GPUs: twins run on processor cores");
  Plan other = plan;
  other.micro_batch_size = 2;
  CHECK(plan_hash(other) != plan_hash(plan));

  certificate.programs = ProgramProof{.stages = 2, .operations = 9, .errors = {"stage 1: ..."}};
  const Certificate back = parse_certificate(to_json(certificate), "certificate");
  REQUIRE(back.programs);
  CHECK(back.programs->operations == 9);
  CHECK(back.programs->errors == certificate.programs->errors);
  CHECK_FALSE(back.agrees());
  certificate.programs->errors.clear();
  CHECK(certificate.agrees());

  certificate.twins.front().device = "NVIDIA H100 (GPU 0)";
  certificate.twins.front().reference = "cpu avx2";
  certificate.twins.front().reference_precision = "fp32";
  written = Json::parse(to_json(certificate));
  CHECK_THAT(written.at("not_shown").at(1).get<std::string>(), Catch::Contains("NCCL"));
  const TwinResult read = parse_certificate(to_json(certificate), "certificate").twins.front();
  CHECK(read.device == "NVIDIA H100 (GPU 0)");
  CHECK(read.reference == "cpu avx2");
  CHECK(read.reference_precision == "fp32");
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
  CHECK(tolerance_of(deeper).relative > 1.9 * base);  // the embedding and the head stay two
  CHECK(tolerance_of(deeper).relative < 2 * base);
  for (const Compared& one : compare(some_run(), some_run(), tolerance_of(deeper)))
    if (one.what == kGradient) CHECK(one.tolerance == 1e-5);  // whatever the formula allows
  for (const Compared& one : compare(some_run(), some_run(), tolerance_of(plan)))
    if (one.what == kGradient) CHECK(one.tolerance == std::min(base, 1e-5));
  plan.workload.precision = DType::BF16;
  CHECK(tolerance_of(plan).relative > 100 * base);
  CHECK_THAT(tolerance_of(plan).derivation, Catch::Contains("bf16"));
}

// Counted by hand from the layer's graph: two norms, qkv, rotation, attention, its projection with
// the residual, gate and up, their activation, down with the residual; of each the gradient.
TEST_CASE("rounded tensors are those between the loss and the first layer", "[certificate]") {
  Plan plan = test::make_plan(test::llama_style());
  plan.workload.precision = DType::BF16;
  const double layer = 2 * 9, embedding = 1, head = 2 + 3;  // norm, logits; of both and of the loss
  CHECK(rounded_tensors(plan) == 4 * layer + embedding + head);
  for (const RecomputeKind kind : {RecomputeKind::Selective, RecomputeKind::Full}) {
    plan.recompute.kind = kind;  // the same bits once more
    CHECK(rounded_tensors(plan) == 4 * layer + embedding + head);
  }
  plan.model.norm_placement = models::NormPlacement::PrePost;  // two more norms, and sums apart
  CHECK(rounded_tensors(plan) > 4 * (layer + 4) + embedding + head);
  // Over two ranks each of four sums in a layer counts both ranks' parts.
  plan = test::make_plan(test::llama_style(), {.tp = 2});
  plan.workload.precision = DType::BF16;
  CHECK(rounded_tensors(plan) >= 4 * (layer + 4 * 2) + embedding + head);
  Plan staged = test::make_plan(test::llama_style(), {.pp = 2});
  staged.workload.precision = DType::BF16;
  CHECK(rounded_tensors(staged) == 4 * layer + embedding + head);
  // FP8: x and w of four linears a layer, and their output's gradient, which counts as four.
  set_precision(staged.workload, Precision::Fp8);
  staged.workload.seq_len = 64;
  staged.model.ffn_size = 128;
  CHECK(rounded_tensors(staged) == 4 * 4 * (1 + 1 + 4));
}

TEST_CASE("what rounding does to a figure on one rank is allowed to others", "[certificate]") {
  const auto run_with = [](double value) {
    TwinRun run;
    run.steps = {{.loss = 1, .gradient_norm = 1}};
    run.gradients["sensitive"] = {.shape = {1}, .values = {value}};
    return run;
  };
  const Tolerance tolerance{.relative = 0.01, .loss = 0.01, .of_rounding = 2.8};
  const TwinRun alone = run_with(1), in_fp32 = run_with(1.05);
  const auto agrees = [&](double value, const TwinRun* exact) {
    return std::ranges::all_of(compare(run_with(value), alone, tolerance, exact),
                               &Compared::agrees);
  };
  CHECK(agrees(1.009, nullptr));
  CHECK_FALSE(agrees(1.1, nullptr));
  CHECK(agrees(1.1, &in_fp32));  // 0.05 / 1.05 * 2.8 = 0.133
  CHECK_FALSE(agrees(1.14, &in_fp32));
  // Few numbers, whose own rounding happens to be small, take the largest of many.
  TwinRun lucky = run_with(1), much = lucky, little = lucky;
  much.gradients["many"] =
      little.gradients["many"] = {.shape = {64}, .values = std::vector<double>(64, 1.0)};
  for (double& value : much.gradients["many"].values) value = 1.05;
  TwinRun other = little;
  other.gradients["sensitive"].values = {1.1};
  CHECK(compare(other, little, tolerance, &much)[2].agrees());
  CHECK_FALSE(compare(other, little, tolerance, &little)[2].agrees());
  const TwinRun insensitive = run_with(1.0001);
  CHECK(agrees(1.009, &insensitive));  // the formats' bound is never undercut
  CHECK_FALSE(agrees(1.02, &insensitive));
}

}  // namespace meshplan::program
