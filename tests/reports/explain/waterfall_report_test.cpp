#include "reports/explain/waterfall_report.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <sstream>

namespace meshplan::reports {
namespace {

using sim::StepPart;

/// A plan whose step is its parts' sum.
planner::PricedPlan plan_of_parts(const sim::StepParts& parts, double peak = 1e12) {
  planner::PricedPlan plan;
  plan.plan.model = models::load_preset("tiny-llama");
  plan.plan.workload = {.seq_len = 128, .global_batch_size = 16};
  plan.parts = parts;
  plan.step.step_time_s = parts.total();
  plan.step.mfu = parts[StepPart::Ideal] / parts.total();
  plan.peak_flop_per_s = peak;
  return plan;
}

sim::StepParts random_parts(std::mt19937& random, double scale) {
  sim::StepParts parts;
  for (const StepPart part : sim::all_step_parts())
    if (random() % 3 != 0) parts[part] = scale * std::uniform_real_distribution(0.0, 1.0)(random);
  parts[StepPart::Ideal] = scale;
  return parts;
}

/// All numbers before a unit in a column of the table, in thousandths.
std::vector<long> thousandths(const std::string& text, const std::string& sign) {
  std::vector<long> numbers;
  const std::regex number("(" + sign + "[0-9]+[.][0-9]{3}) (ms|s)\\b");
  for (std::sregex_iterator it(text.begin(), text.end(), number), end; it != end; ++it)
    numbers.push_back(std::lround(std::stod((*it)[1]) * 1000));
  return numbers;
}

}  // namespace

TEST_CASE("a waterfall's terms sum to the difference, as numbers and as shown", "[reports]") {
  std::mt19937 random(20261125);
  for (int round = 0; round < 500; ++round) {
    const double scale = std::pow(10.0, static_cast<double>(round % 7) - 4);
    const planner::ComparedPlans compared =
        planner::compare(plan_of_parts(random_parts(random, scale)),
                         plan_of_parts(random_parts(random, scale)), true);
    double sum = compared.a.step.step_time_s;
    for (const WaterfallTerm& term : waterfall(compared)) sum += term.seconds;
    CHECK(sum == Approx(compared.b.step.step_time_s).epsilon(1e-12));

    const std::string text = waterfall_text(compared);
    const std::string table = text.substr(text.find("step of A"), text.find("MFU counts"));
    std::vector<long> terms = thousandths(table, "[+-]");
    REQUIRE(terms.size() >= 2);
    const long total = terms.back();  // of the row "step of B"
    terms.pop_back();
    long shown = 0;
    for (const long term : terms) shown += term;
    CHECK(shown == total);
  }
}

TEST_CASE("a waterfall names the terms, and what MFU counts", "[reports]") {
  sim::StepParts of_a, of_b;
  of_a[StepPart::Ideal] = of_b[StepPart::Ideal] = 4;
  of_a[StepPart::Bubble] = 2;
  of_b[StepPart::Products] = 1;
  const planner::ComparedPlans compared =
      planner::compare(plan_of_parts(of_a), plan_of_parts(of_b, 2e12), true);
  CHECK(waterfall_text(compared) ==
        "A  one rank mbs1\n"
        "B  one rank mbs1\n"
        "\n"
        "from A's step to B's, term by term\n"
        "                                     B - A  step so far  MFU so far\n"
        "  step of A                                     6.000 s      66.7 %\n"
        "  matrix products below the peak  +1.000 s      7.000 s      57.1 %\n"
        "  bubble                          -2.000 s      5.000 s      80.0 %\n"
        "  step of B                       -1.000 s      5.000 s      80.0 %\n"
        "MFU counts 3 forwards of the model, attention by the pairs that its mask leaves and "
        "nothing that is computed again\n(Chowdhery et al. 2022, appendix B), over 1 ranks at a "
        "dense fp32 peak of 1 TFLOP/s (A) and 1 ranks at a dense fp32 peak of 2 TFLOP/s (B)\n"
        "\n"
        "B is 1.00 s faster: 950 ms more than the 50.0 ms below which it would be a tie\n");
  const auto json = nlohmann::json::parse(waterfall_json(compared));
  CHECK(json.at("terms").size() == 3);
  CHECK(json.at("terms").at(1).at("term") == "products");
  CHECK(json.at("terms").at(1).at("seconds") == 1);
}

}  // namespace meshplan::reports
