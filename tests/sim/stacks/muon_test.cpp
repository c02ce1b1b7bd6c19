// Muon's memory and time, beside sums by hand.
#include "stacks/optimizer/muon.hpp"

#include <catch2/catch.hpp>

#include "models/counts.hpp"
#include "sim/run_cases.hpp"

namespace meshplan::sim {
namespace {

using program::MuonTp;

constexpr double kSide = 1024;
constexpr double kSquare = kSide * kSide;
constexpr double kCube = kSide * kSquare;

/// Layers of q, k, v and o (1024 x 1024), up and down (4096 x 1024).
TrainingRun muon_run(int replicas = 8) {
  TrainingRun run = small_gpt(24);
  run.profile = "megatron-core";
  run.cluster = "dgx-h100";
  run.parallel.dp = replicas;
  run.global_batch_size = 8 * replicas;
  run.zero_stage = 1;
  run.orthogonal_steps = 5;
  return run;
}

double parameters_of(const TrainingRun& run) {
  return static_cast<double>(models::count_parameters(models::build_graph(run.model)).total);
}

double flops(const std::vector<WorkItem>& items) {
  double sum = 0;
  for (const WorkItem& item : items)
    if (item.kind == WorkKind::Product) sum += 2 * item.count * item.m * item.n * item.k;
  return sum;
}

double moved(const std::vector<WorkItem>& items) {
  double sum = 0;
  for (const WorkItem& item : items)
    if (item.kind == WorkKind::Collective) sum += item.bytes;
  return sum;
}

}  // namespace

TEST_CASE("Muon's matrices have one moment, on the rank that owns them", "[sim][stack][muon]") {
  constexpr double kMatrices = 24 * 12 * kSquare;
  const auto state = [](int replicas, int zero_stage) {
    TrainingRun run = muon_run(replicas);
    run.zero_stage = zero_stage;
    return memory_of(run).optimizer;
  };
  const double others = parameters_of(muon_run()) - kMatrices;
  CHECK(state(8, 0) == Approx(8 * kMatrices + 12 * others));
  CHECK(state(8, 1) == Approx((8 * kMatrices + 12 * others) / 8));
  // 144 matrices are fewer than 512 ranks: some own one of 4096 x 1024.
  CHECK(state(512, 1) == Approx(8 * 4 * kSquare + 12 * others / 512));

  TrainingRun whole = muon_run();  // the embedding has one owner, too
  whole.model.vocab_size = 128'000;
  const double divided = memory_of(whole).optimizer;
  const double rest = parameters_of(whole) - kMatrices;
  whole.settings.layer_wise_layout = false;
  CHECK(memory_of(whole).optimizer - divided == Approx(12 * (128'000 * kSide - rest / 8)));
}

TEST_CASE("The second moment that matrices lack has the run's dtype", "[sim][stack][muon]") {
  TrainingRun run = muon_run();
  run.settings.second_moment_dtype = program::StateDType::BF16;
  TrainingRun adam = run;
  adam.orthogonal_steps = 0;
  CHECK(memory_of(adam).optimizer - memory_of(run).optimizer ==
        Approx(2.0 * 24 * 12 * kSquare / 8));
}

// An iteration of m x n, m <= n: X X^T is 2 m^2 n, its square 2 m^3, and the sum 2 m^2 n.
TEST_CASE("An iteration has three products of the shorter side", "[sim][stack][muon]") {
  const TrainingRun run = muon_run();
  const auto whole = [&](double rows, double columns) {
    return flops(orthogonalization({.rows = rows, .columns = columns}, run));
  };
  CHECK(whole(kSide, kSide) == Approx(5 * 6 * kCube));
  CHECK(whole(4 * kSide, kSide) == Approx(5 * 18 * kCube));
  CHECK(whole(kSide, 4 * kSide) == Approx(5 * 18 * kCube));
}

TEST_CASE("Ranks of tp do a matrix each, each their part, or together", "[sim][stack][muon]") {
  TrainingRun run = muon_run();
  const TrainedMatrix up{
      .rows = 4 * kSide, .columns = kSide, .split = models::Split::Column, .divided = 4};
  TrainedMatrix down{
      .rows = kSide, .columns = 4 * kSide, .split = models::Split::Row, .divided = 4};
  run.settings.muon_tp = MuonTp::Duplicated;
  CHECK(flops(orthogonalization(up, run)) == Approx(5 * 18 * kCube));
  CHECK(moved(orthogonalization(up, run)) == Approx(4 * kSquare));  // fp32 of its part
  run.settings.muon_tp = MuonTp::Blockwise;
  for (const TrainedMatrix& part : {up, down}) {  // of 1024 x 1024
    CHECK(flops(orthogonalization(part, run)) == Approx(5 * 6 * kCube));
    CHECK(moved(orthogonalization(part, run)) == 0);
  }
  run.settings.muon_tp = MuonTp::Distributed;
  for (const TrainedMatrix& part : {up, down}) {  // Gram matrices of 1024 in bf16
    CHECK(flops(orthogonalization(part, run)) == Approx(5 * 6 * kCube));
    CHECK(moved(orthogonalization(part, run)) == Approx(5 * 2 * kSquare));
  }
  // The divided side is the shorter one: Gram matrices are of the longer.
  down.rows = 8 * kSide;
  CHECK(flops(orthogonalization(down, run)) == Approx(5 * (2 * 2 * 64 + 2 * 512) * kCube));
}

TEST_CASE("Muon's update takes the time of its products", "[sim][stack][muon]") {
  const auto optimizer = [](int steps) {
    TrainingRun run = muon_run();
    run.model.hidden_size *= 4;  // small matrices wait for the host
    run.model.ffn_size *= 4;
    run.model.num_heads = run.model.num_kv_heads = 64;
    run.orthogonal_steps = steps;
    return predict(run).seconds.optimizer;
  };
  // 4 matrices of 6 and 2 of 18, 24 layers, over 8 ranks; an H100 has 989.4 TFLOP/s.
  const double at_peak = 5 * 24 * (4 * 6 + 2 * 18) * 64 * kCube / 8 / 989.4e12;
  const double five = optimizer(10) - optimizer(5);
  CHECK(five > at_peak);
  CHECK(five < 2 * at_peak);
  CHECK(optimizer(5) > optimizer(0));
}

TEST_CASE("Without a layout by layers Muon's gradients are summed on all ranks",
          "[sim][stack][muon]") {
  TrainingRun run = muon_run();
  const double scattered = predict(run).seconds.data_parallel;
  run.settings.layer_wise_layout = false;
  // A reduce-scatter of 4 bytes and a gather of 2 become an all-reduce and a gather: 10 to 6.
  CHECK(predict(run).seconds.data_parallel / scattered > 1.2);
  CHECK(predict(run).seconds.data_parallel / scattered < 1.8);
}

}  // namespace meshplan::sim
