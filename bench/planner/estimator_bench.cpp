// How near the estimator comes to the engine: over random plans, the error of its step time and of
// its memory, by technique.
//   estimator_bench [PLANS] [SEED]        default: 1000 1
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "core/statistics.hpp"
#include "reports/table.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/random_plans.hpp"

namespace {

using namespace meshplan;

struct Errors {
  std::vector<double> time;  // relative to what was played, signed
  std::vector<double> memory;

  void add(double of_time, double of_memory) {
    time.push_back(of_time);
    memory.push_back(of_memory);
  }
};

double quantile_of_size(std::vector<double> errors, double part) {
  for (double& error : errors) error = std::abs(error);
  return quantile(std::move(errors), part);
}

std::vector<std::string> row(const std::string& name, const Errors& errors) {
  const auto percent = [](double value) { return fmt::format("{:.2f} %", 100 * value); };
  const auto equal = std::ranges::count(errors.memory, 0.0);
  return {name,
          std::to_string(errors.time.size()),
          percent(mean(errors.time)),
          percent(quantile_of_size(errors.time, 0.5)),
          percent(quantile_of_size(errors.time, 0.9)),
          percent(quantile_of_size(errors.time, 0.99)),
          percent(quantile_of_size(errors.time, 1)),
          fmt::format("{:.1f} %", 100.0 * static_cast<double>(equal) /
                                      static_cast<double>(errors.memory.size())),
          percent(quantile_of_size(errors.memory, 1))};
}

}  // namespace

int main(int argc, char** argv) {
  const int plans = argc > 1 ? std::atoi(argv[1]) : 1000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  testing::Random random(seed);
  std::map<std::string, Errors> by_technique;
  Errors all, close, rough;
  for (int i = 0; i < plans; ++i) {
    const sim::RandomPlan one = sim::random_plan(random);
    const sim::StepPrediction played = sim::simulate_step(one.plan, one.cluster).step;
    const sim::StepPrediction estimated = sim::Estimator(one.cluster).estimate(one.plan);
    const double time = estimated.step_time_s / played.step_time_s - 1;
    const double memory = estimated.peak_memory_bytes / played.peak_memory_bytes - 1;
    all.add(time, memory);
    for (const std::string& technique : one.techniques) by_technique[technique].add(time, memory);
    (estimated.rough ? rough : close).add(time, memory);
    if (std::getenv("MESHPLAN_LIST") != nullptr)
      fmt::print("{:+.4f} {:+.4f} {} on {}: {}\n", time, memory, to_string(one.plan.parallel),
                 one.cluster.name, fmt::join(one.techniques, ", "));
  }
  reports::Table table{.columns = {{"technique", reports::Align::Left},
                                   {"plans"},
                                   {"mean error"},
                                   {"median"},
                                   {"90th"},
                                   {"99th"},
                                   {"worst"},
                                   {"memory equal"},
                                   {"worst memory"}}};
  for (const auto& [name, errors] : by_technique) table.rows.push_back(row(name, errors));
  for (const auto& [name, errors] :
       {std::pair("said to be close", close), {"said to be rough", rough}, {"all", all}})
    if (!errors.time.empty()) table.rows.push_back(row(name, errors));
  fmt::print("{}", reports::to_text(table, 0));
  return 0;
}
