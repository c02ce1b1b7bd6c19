// A step's report over real ranks.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <numeric>

#include "comm/host_communicator.hpp"
#include "kernels/cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "program/cost/cost.hpp"
#include "program/cost/model_flops.hpp"
#include "program/lower/lower.hpp"
#include "runtime/parity/parity_models.hpp"
#include "train/step_watch.hpp"

namespace meshplan::test {
namespace {

using program::ParallelConfig;

program::Plan watched_plan(const ParallelConfig& parallel) {
  program::Plan plan;
  plan.model = llama_style();
  plan.parallel = parallel;
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 8;
  plan.bucket_bytes = 64 << 10;
  return plan;
}

/// One rank of a job that trains, and what watches it.
struct Watched {
  std::unique_ptr<runtime::Communicator> world = runtime::make_host_world(mpi_session(), {});
  std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend(1);
  runtime::HostDevice device{*backend};
  runtime::Trainer trainer;
  runtime::StepWatch watch;
  program::RowsBeyondPlan own_rows = {};  // of this rank, in the last step

  Watched(const program::Plan& plan, const runtime::WatchOptions& options)
      : trainer(program::lower(plan, runtime::stage_of(plan, world->rank())), std::nullopt, *world,
                device, 7, nullptr),
        watch(options, trainer, *world, {}, nullptr) {}

  program::StepReport step(int number) {
    const runtime::StepBatch batch =
        parity_batch(trainer.program().plan, trainer.groups().coordinates());
    const double begin = runtime::monotonic_seconds();
    watch.begin(number);
    const runtime::StepOutcome outcome =
        trainer.train_step(batch, {.optimizer_step = number, .learning_rate = 1e-3});
    program::StepReport report{.step = number, .loss = outcome.loss};
    if (trainer.program().plan.model.moe)
      report.experts = {.beyond_plan = outcome.rows_beyond_plan};
    own_rows = outcome.rows_beyond_plan;
    watch.complete(report, runtime::monotonic_seconds() - begin);
    return report;
  }
};

}  // namespace

TEST_CASE("a step's report accounts for all of its time, alike on every rank", "[watch]") {
  for (const ParallelConfig& parallel :
       {ParallelConfig{.tp = 2, .pp = 2}, ParallelConfig{.pp = 2, .dp = 2}}) {
    const program::Plan plan = watched_plan(parallel);
    Watched ranks(plan, {.job_peak_flop_per_s = 1e9});
    const program::StepReport report = ranks.step(1);
    REQUIRE(report.timing);
    // The means of the phases sum to the mean of the ranks' steps, which the slowest bounds.
    double sum = 0;
    for (const auto& [name, seconds] : report.timing->phases_s) sum += seconds.mean;
    CHECK(sum <= report.seconds * (1 + 1e-9));
    CHECK(sum > 0.5 * report.seconds);
    CHECK(report.samples_per_s == Approx(8 / report.seconds));
    CHECK(report.tokens_per_s == Approx(8 * 16 / report.seconds));
    CHECK(*report.mfu == Approx(program::model_flops_per_step(plan) / (report.seconds * 1e9)));
    CHECK(report.resident_bytes > 1e6);
    CHECK(report.timing->communication.contains("pp"));
    CHECK(report.timing->communication.contains("tp") == (parallel.tp > 1));
    CHECK(report.timing->communication.contains("dp-cp") == (parallel.dp > 1));
    CHECK(report.timing->busy_share.max <= 1);
    CHECK(report.timing->busy_share.min > 0);
    CHECK(report.timing->rank_balance <= 1);
    CHECK(report.timing->stage_balance >= report.timing->rank_balance);

    // Buckets are those of the programs of both stages.
    std::vector<std::int64_t> expected;
    for (int stage = 0; stage < parallel.pp; ++stage) {
      const runtime::RankTimer timer(program::lower(plan, stage));
      expected.insert(expected.end(), timer.bucket_bytes().begin(), timer.bucket_bytes().end());
    }
    std::vector<std::int64_t> bytes;
    for (const program::BucketTime& bucket : report.timing->buckets) bytes.push_back(bucket.bytes);
    CHECK(bytes == expected);
    CHECK(bytes.empty() == (parallel.dp == 1));

    // All ranks have the same report.
    double largest = report.seconds;
    const runtime::MutableBuffer buffer{&largest, 1, DType::F64};
    ranks.world->all_reduce(buffer, buffer, runtime::ReduceOp::Max).wait();
    CHECK(largest == report.seconds);
  }
}

TEST_CASE("steps are timed as often as asked", "[watch]") {
  Watched never(watched_plan({.pp = 2, .dp = 2}), {.time_every = 0});
  CHECK_FALSE(never.step(1).timing);
  CHECK_FALSE(never.step(2).mfu);
  Watched second(watched_plan({.pp = 2, .dp = 2}), {.time_every = 2});
  CHECK(second.step(1).timing);
  CHECK_FALSE(second.step(2).timing);
  CHECK(second.step(3).timing);
}

TEST_CASE("rows beyond the plan are summed and compared over ranks", "[watch][experts]") {
  program::Plan plan = watched_plan({.dp = 4, .ep = 4});
  plan.model = mixtral_style();
  plan.expert_imbalance = 1;
  Watched ranks(plan, {});
  const program::StepReport report = ranks.step(1);
  std::array<double, 3> figures = {ranks.own_rows.layer_visits, ranks.own_rows.bytes,
                                   ranks.own_rows.largest_imbalance};
  std::vector<double> all(4 * figures.size());
  ranks.world->all_gather({figures.data(), 3, DType::F64}, {all.data(), 12, DType::F64}).wait();
  program::RowsBeyondPlan expected;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    expected.layer_visits += all[3 * rank];
    expected.bytes = std::max(expected.bytes, all[3 * rank + 1]);
    expected.largest_imbalance = std::max(expected.largest_imbalance, all[3 * rank + 2]);
  }
  CHECK(report.experts->beyond_plan == expected);
  CHECK(expected.layer_visits > 0);
}

}  // namespace meshplan::test
