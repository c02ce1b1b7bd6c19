#include "runtime/train/loss_scale.hpp"

#include <catch2/catch.hpp>

#include "bind/gradient_scale.hpp"

namespace meshplan::test {

using runtime::LossScaler;

TEST_CASE("the loss scale grows after an interval and backs off at an overflow",
          "[runtime][loss_scale]") {
  LossScaler scaler({.initial = 1024, .growth = 4, .backoff = 0.25, .growth_interval = 3});
  for (int step = 0; step < 3; ++step) {
    CHECK(scaler.state().scale == 1024);
    CHECK(scaler.update(true));
  }
  CHECK(scaler.state().scale == 4096);
  CHECK(scaler.update(true));
  CHECK(scaler.update(true));
  CHECK(scaler.update(false));  // starts the interval again
  CHECK(scaler.state().scale == 1024);
  CHECK(scaler.state().skipped_steps == 1);
  CHECK(scaler.update(true));
  CHECK(scaler.update(true));
  CHECK(scaler.state().scale == 1024);
  CHECK(scaler.update(true));
  CHECK(scaler.state().scale == 4096);
}

TEST_CASE("below a scale of 1 it is no matter of scale", "[runtime][loss_scale]") {
  LossScaler scaler({.initial = 3, .backoff = 0.5});
  CHECK(scaler.update(false));
  CHECK(scaler.state().scale == 1.5);
  CHECK(scaler.update(false));
  CHECK(scaler.state().scale == 1);
  CHECK_FALSE(scaler.update(false));
  CHECK(scaler.state().skipped_steps == 2);
}

TEST_CASE("a resumed scaler goes on where the other one stood", "[runtime][loss_scale]") {
  const runtime::LossScaling options{.initial = 64, .growth_interval = 4};
  LossScaler whole(options);
  LossScaler half(options);
  const auto finite = [](int step) { return step % 6 != 5; };
  for (int step = 0; step < 9; ++step) {
    whole.update(finite(step));
    half.update(finite(step));
  }
  LossScaler resumed(options);
  resumed.resume(half.state());
  for (int step = 9; step < 30; ++step) {
    CHECK(resumed.state().scale == whole.state().scale);
    whole.update(finite(step));
    resumed.update(finite(step));
  }
  CHECK(resumed.state().skipped_steps == whole.state().skipped_steps);
}

TEST_CASE("only fp16 scales its loss, and the gradient of a token is its share of the batch",
          "[runtime][loss_scale]") {
  program::Workload workload{.seq_len = 64, .global_batch_size = 4};
  CHECK(runtime::gradient_scale_of(256) == 1.0F / 256);
  CHECK_FALSE(runtime::scales_loss(workload));
  workload.precision = DType::BF16;
  CHECK_FALSE(runtime::scales_loss(workload));
  workload.precision = DType::F16;
  CHECK(runtime::scales_loss(workload));
}

}  // namespace meshplan::test
