// Schedules of equal tasks, against the closed forms of Narayanan et al. 2021, section 2.2.
#include "schedules/pipeline_time.hpp"

#include <catch2/catch.hpp>

namespace meshplan::sim {
namespace {

PipelineInput equal_stages(int stages, int chunks, int microbatches, double forward,
                           double backward) {
  const std::vector<ChunkTime> stage(static_cast<std::size_t>(chunks), {forward, backward});
  return {
      .schedule = chunks > 1 ? program::ScheduleKind::Interleaved : program::ScheduleKind::OneFOneB,
      .stages = std::vector<std::vector<ChunkTime>>(static_cast<std::size_t>(stages), stage),
      .num_microbatches = microbatches,
      .transfers = std::vector<double>(static_cast<std::size_t>(stages), 0)};
}

}  // namespace

TEST_CASE("1F1B of equal stages takes m + p - 1 rounds", "[sim][pipeline]") {
  CHECK(pipeline_seconds(equal_stages(4, 1, 8, 1, 2)) == Approx((8 + 3) * 3.0));
  CHECK(pipeline_seconds(equal_stages(1, 1, 8, 1, 2)) == Approx(8 * 3.0));
}

// The bubble is (p - 1) / v rounds: with 2 chunks of half the work, 8 * 3 + 3 * 3 / 2.
TEST_CASE("Interleaving divides the bubble by the chunks", "[sim][pipeline]") {
  CHECK(pipeline_seconds(equal_stages(4, 2, 8, 0.5, 1)) == Approx(8 * 3 + 3 * 3 / 2.0));
  CHECK(pipeline_seconds(equal_stages(4, 4, 16, 0.25, 0.5)) == Approx(16 * 3 + 3 * 3 / 4.0));
}

// All forwards, then all backwards: each half takes m + p - 1 of its tasks.
TEST_CASE("GPipe of equal stages takes m + p - 1 rounds", "[sim][pipeline]") {
  for (const int m : {3, 8, 1000}) {
    PipelineInput input = equal_stages(4, 1, m, 1, 2);
    input.schedule = program::ScheduleKind::GPipe;
    CHECK(pipeline_seconds(input) == Approx((m + 3) * 3.0));
  }
}

TEST_CASE("A long run continues at the period of its last rounds", "[sim][pipeline]") {
  CHECK(pipeline_seconds(equal_stages(4, 1, 1000, 1, 2)) == Approx((1000 + 3) * 3.0));
  CHECK(pipeline_seconds(equal_stages(4, 2, 1000, 0.5, 1)) == Approx(1000 * 3 + 4.5));
}

// Any order of the last group must not wait in a circle; it costs at most a whole group's time.
TEST_CASE("A last group that is not whole is played to its end", "[sim][pipeline]") {
  for (const int chunks : {2, 3})
    for (int m = 1; m <= 24; ++m) {
      INFO(chunks << " chunks, " << m << " micro-batches");
      const double seconds = pipeline_seconds(equal_stages(4, chunks, m, 1, 2));
      CHECK(seconds >= m * chunks * 3.0);
      CHECK(seconds <= pipeline_seconds(equal_stages(4, chunks, (m + 3) / 4 * 4, 1, 2)) + 1e-9);
    }
}

// The slowest stage sets the period. Two stages, the second of 2 + 4: it starts after 1 and does
// 5 rounds of 6; its last backward's gradient needs 2 more on the first.
TEST_CASE("The slowest stage sets the period", "[sim][pipeline]") {
  PipelineInput input = equal_stages(2, 1, 5, 1, 2);
  input.stages[1][0] = {2, 4};
  CHECK(pipeline_seconds(input) == Approx(1 + 5 * 6 + 2));
}

// 2 stages, m = 1: forward, send, forward, backward, send, backward.
TEST_CASE("A send lies between stages", "[sim][pipeline]") {
  PipelineInput input = equal_stages(2, 1, 1, 1, 2);
  input.transfers = {0.5, 0.5};
  CHECK(pipeline_seconds(input) == Approx(6 + 2 * 0.5));
}

// 3 stages, m = 1: each boundary is passed once each way. Where messages block, so do both ends.
TEST_CASE("Each boundary between stages has a time of its own", "[sim][pipeline]") {
  PipelineInput input = equal_stages(3, 1, 1, 1, 2);
  input.transfers = {0.5, 4, 100};
  CHECK(pipeline_seconds(input) == Approx(9 + 2 * 4.5));
  input.transfers = {0.5, 4, 0};
  input.transfer_busy = 0.5;
  // Blocked: 0.25 in the first stage, 0.25 + 2 in the second, 2 in the last, in both passes.
  CHECK(pipeline_seconds(input) == Approx(9 + 2 * 4.5 + 2 * (0.25 + 2.25 + 2)));
}

TEST_CASE("A number of micro-batches that fills no whole group still ends", "[sim][pipeline]") {
  const double whole = pipeline_seconds(equal_stages(4, 2, 8, 0.5, 1));
  const double more = pipeline_seconds(equal_stages(4, 2, 10, 0.5, 1));
  CHECK(more > whole);
  CHECK(more < whole + 4 * 3);
}

}  // namespace meshplan::sim
