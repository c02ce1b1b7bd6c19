#include "planner/tune/tuning.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "planner/tune/learned.hpp"
#include "planner/tune/tuned_world.hpp"

namespace meshplan::planner {
namespace {

TuneCandidate measured_at(std::vector<double> rounds, double predicted = 1) {
  TuneCandidate candidate = predicted_to_take(predicted, 0);
  for (const double seconds : rounds)
    candidate.rounds.push_back({.turn = 0, .step_times_s = {seconds}});
  return candidate;
}

}  // namespace

TEST_CASE("the deviation between rounds is pooled over plans", "[planner][tune]") {
  CHECK(round_sigma({}) == Approx(0.05));
  // ln x = +-0.1 around its mean: a sum of squares of 0.02, one degree of freedom.
  const double up = std::exp(0.1), down = std::exp(-0.1);
  CHECK(round_sigma({measured_at({up, down})}) == Approx(std::sqrt((0.0025 + 0.02) / 2)));
  CHECK(round_sigma({measured_at({up, down}), measured_at({5 * up, 5 * down})}) ==
        Approx(std::sqrt((0.0025 + 0.04) / 3)));
}

TEST_CASE("plans are told apart by the deviation and their rounds, never within a percent",
          "[planner][tune]") {
  const TuneCandidate one = measured_at({1}), three = measured_at({1, 1, 1});
  CHECK(told_apart(one, three, 0.03) ==
        Approx(std::exp(sim::kDeviations80 * 0.03 * std::sqrt(1 + 1.0 / 3)) - 1));
  CHECK(told_apart(one, three, 0) == 0.01);
}

TEST_CASE("of plans that the noise does not tell apart the simplest is chosen", "[planner][tune]") {
  TuneCandidate tp2 = measured_at({1.000, 1.001, 1.002}),
                plain = measured_at({1.004, 1.005, 1.003});
  tp2.plan.parallel.tp = 2;
  const TuneCandidate slower = measured_at({1.3, 1.3, 1.3});
  const auto choice = choose({tp2, plain, slower}, {});
  REQUIRE(choice.has_value());
  CHECK(choice->fastest == 0);
  CHECK(choice->index == 1);
  CHECK(choice->ties == std::vector<std::size_t>{0, 1});
  CHECK(choice->complete);
}

TEST_CASE("a plan with fewer rounds is chosen only where none has all", "[planner][tune]") {
  const TuneCandidate lucky = measured_at({0.8}), full = measured_at({1, 1, 1});
  CHECK(choose({lucky, full}, {})->index == 1);
  const auto early = choose({lucky, measured_at({1, 1})}, {});
  CHECK(early->index == 0);
  CHECK_FALSE(early->complete);
}

TEST_CASE("measurements scale predictions by their median ratio", "[planner][tune]") {
  CHECK(calibration_of({}).factor == 1);
  CHECK(calibration_of({measured_at({2})}).freedom == 0);
  // Ratios 2, 2 e^0.1 and 2 e^-0.1.
  const TuneCalibration calibration = calibration_of(
      {measured_at({2}), measured_at({2 * std::exp(0.1)}), measured_at({2 * std::exp(-0.1)})});
  CHECK(calibration.factor == Approx(2));
  CHECK(calibration.squares == Approx(0.02));
  CHECK(calibration.freedom == 2);
}

TEST_CASE("the least time of a plan is what its terms and the errors seen allow",
          "[planner][tune]") {
  const TuneCandidate next = predicted_to_take(1.2, 1, 0.1);
  CHECK(optimistic_s(next, {}) == Approx(sim::interval_of(next.prediction.terms, 1.2).low_s));
  // One measured plan, twice as slow as predicted: its terms err by 0.05 s, the next one's by 0.12.
  const TuneCandidate first = measured_at({2});
  const double of_terms = sim::kDeviations80 * std::hypot(1 * 0.05, 1.2 * 0.1);
  CHECK(optimistic_s(next, {first, next}) == Approx(2 * (1.2 - of_terms)));
  // Two more that the calibrated model predicts exactly: the terms' variance counts half.
  CHECK(optimistic_s(next, {first, first, first, next}) ==
        Approx(2 * (1.2 - of_terms / std::sqrt(2))));
}

TEST_CASE("what was learned sums over the plans that ran", "[planner][tune]") {
  sim::Breakdown predicted, measured;
  predicted[sim::Category::Forward] = 1;
  predicted[sim::Category::Tp] = 0.5;
  measured[sim::Category::Forward] = 1.1;
  measured[sim::Category::Tp] = 1.5;
  const std::vector<TermError> terms = terms_off(std::vector{predicted}, std::vector{measured});
  REQUIRE(terms.size() == 2);
  CHECK(terms[0].name == sim::name_of(sim::Category::Tp));
  CHECK(terms[0].off_s() == Approx(1));
  CHECK(terms[1].off_s() == Approx(0.1));

  CHECK_FALSE(prediction_errors({predicted_to_take(1, 0)}).has_value());
  TuneCandidate half = measured_at({2});
  half.prediction.before_s = 1;
  half.prediction.after_s = 2;
  const auto errors = prediction_errors({half, predicted_to_take(1, 1)});
  CHECK(errors->before == Approx(0.5));
  CHECK(errors->after == Approx(0));
  CHECK(errors->plans == 1);
}

}  // namespace meshplan::planner
