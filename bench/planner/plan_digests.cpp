// What random plans become, for comparing two versions of meshplan: scripts/same_behaviour.sh.
//   plan_digests [PLANS] [SEED]        default: 2500 2026
// One line each: digest of the plan, digest of the programs of all stages, step times in seconds as
// played and as estimated, and the peak memory in bytes of each.
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>

#include "core/hash.hpp"
#include "program/lower/lower.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/trace/program_json.hpp"
#include "sim/engine/engine.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/random_plans.hpp"

int main(int argc, char** argv) {
  using namespace meshplan;
  const int plans = argc > 1 ? std::atoi(argv[1]) : 2500;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 2026;
  testing::Random random(seed);
  for (int i = 0; i < plans; ++i) {
    const sim::RandomPlan one = sim::random_plan(random);
    const std::vector<program::Program> programs = program::lower_all(one.plan);
    std::string digests;
    for (const program::Program& program : programs)
      digests += hex(content_hash(program::to_json(program)));
    const sim::SimulationResult played =
        sim::simulate(programs, one.cluster, {.record_spans = false});
    const sim::StepPrediction estimated = sim::Estimator(one.cluster).estimate(one.plan);
    fmt::print("{:5} plan {} programs {} played {:.15g} s {} B estimated {:.15g} s {} B\n", i,
               hex(content_hash(program::to_json(one.plan))), hex(content_hash(digests)),
               played.step_time_s, played.memory.peak_bytes, estimated.step_time_s,
               estimated.peak_memory_bytes);
    std::fflush(stdout);
  }
}
