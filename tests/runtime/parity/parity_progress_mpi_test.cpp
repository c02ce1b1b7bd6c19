// Who moves the messages, a rank inside its waits or its progress thread, changes no bit.
#include <catch2/catch.hpp>
#include <vector>

#include "runtime/parity/parity_job.hpp"
#include "runtime/parity/parity_models.hpp"

namespace meshplan::test::parity_progress {
namespace {

using program::CompressionKind;

Plan plan_of(const models::ModelSpec& model, const ParallelConfig& parallel, int zero_stage = 0) {
  Plan plan = parity_plan(model, parallel);
  plan.zero_stage = zero_stage;
  plan.bucket_bytes = 16 << 10;  // many in flight
  return plan;
}

std::vector<Plan> plans() {
  std::vector<Plan> all = {plan_of(llama_style(), {.dp = 2}),
                           plan_of(llama_style(), {.dp = 4}, 1),
                           plan_of(llama_style(), {.dp = 2}, 2),
                           plan_of(llama_style(), {.dp = 4}, 3),
                           plan_of(llama_style(), {.pp = 2, .dp = 2}),
                           plan_of(gpt2_style(), {.tp = 2, .dp = 2, .sp = true}, 2),
                           plan_of(llama_style(), {.cp = 2, .dp = 2}),
                           plan_of(mixtral_style(), {.dp = 4, .ep = 2}, 1)};
  all.push_back(plan_of(llama_style(), {.pp = 2, .vpp = 2, .dp = 2}));
  all.back().schedule = ScheduleKind::Interleaved;
  all.push_back(plan_of(llama_style(), {.pp = 2, .dp = 2}, 1));
  all.back().schedule = ScheduleKind::ZbH1;
  all.push_back(plan_of(llama_style(), {.dp = 2}));
  all.back().compression.kind = CompressionKind::Int8;
  return all;
}

}  // namespace

TEST_CASE("a progress thread changes no bit", "[parity][progress]") {
  ParityJob job{.steps = 3};
  for (const Plan& plan : plans()) {
    const auto without = job.run(plan);
    job.world->progress_in_background(true);
    const auto with = job.run(plan);
    job.world->progress_in_background(false);
    if (!without) continue;
    INFO(plan.model.name << " " << to_string(plan.parallel) << " zero " << plan.zero_stage);
    CHECK(with->losses == without->losses);
    CHECK(with->gradient_norms == without->gradient_norms);
    CHECK(with->gradients == without->gradients);
    CHECK(with->weights == without->weights);
    CHECK(with->weights_hash == without->weights_hash);
  }
}

}  // namespace meshplan::test::parity_progress
