#include "train/step_watch.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <numeric>

#include "core/error.hpp"
#include "core/index.hpp"
#include "program/cost/cost.hpp"
#include "program/cost/model_flops.hpp"
#include "runtime/guard/status_board.hpp"
#include "runtime/os/host_info.hpp"

namespace meshplan::runtime {
namespace {

using program::OverRanks;

// The figures of a rank, in this order, then those of its buckets.
constexpr std::size_t kSeconds = 0;
constexpr std::size_t kResident = 1;
constexpr std::size_t kVisitsBeyondPlan = 2;
constexpr std::size_t kRoomBytes = 3;
constexpr std::size_t kImbalanceBeyondPlan = 4;
constexpr std::size_t kUntimedFigures = 5;
constexpr std::size_t kPhases = kUntimedFigures;
constexpr std::size_t kExposed = kPhases + kNumTimedPhases;
constexpr std::size_t kHidden = kExposed + kNumGroups;
constexpr std::size_t kBuckets = kHidden + kNumGroups;
constexpr std::size_t kHost = 5;  // in phase_names(); phases before it compute

std::vector<int> stages_of(const program::Mesh& mesh) {
  std::vector<int> stages;
  for (int rank = 0; rank < mesh.world_size(); ++rank) stages.push_back(mesh.coordinates(rank).pp);
  return stages;
}

/// @param ranks  that count, ascending  @param figure  of a rank
OverRanks over(std::span<const int> ranks, const std::function<double(int)>& figure) {
  OverRanks result{
      .min = figure(ranks.front()), .max = figure(ranks.front()), .max_rank = ranks.front()};
  for (const int rank : ranks) {
    const double value = figure(rank);
    result.mean += value / static_cast<double>(ranks.size());
    result.min = std::min(result.min, value);
    if (value <= result.max) continue;
    result.max = value;
    result.max_rank = rank;
  }
  return result;
}

/// 1 where nothing was done at all.
double mean_over_max(const std::vector<double>& values) {
  const double most = *std::ranges::max_element(values);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return most > 0 ? sum / static_cast<double>(values.size()) / most : 1;
}

}  // namespace

StepWatch::StepWatch(const WatchOptions& options, Trainer& trainer, Communicator& world,
                     std::span<const double> losses, StatusBoard* status)
    : options_(options),
      trainer_(trainer),
      world_(world),
      status_(status),
      exchanging_(fmt::format("stage {}, step_report", trainer.program().role.stage)),
      timer_(trainer.program()),
      stages_(stages_of(trainer.groups().mesh())),
      spikes_(options.loss_spike, losses),
      slow_ranks_(options.slow_rank, stages_),
      model_flops_(program::model_flops_per_step(trainer.program().plan)) {
  auto most = static_cast<std::int64_t>(timer_.bucket_bytes().size());
  const MutableBuffer buffer{&most, 1, DType::I64};
  world.all_reduce(buffer, buffer, ReduceOp::Max).wait();
  most_buckets_ = static_cast<std::size_t>(most);
  std::vector<std::int64_t> own = timer_.bucket_bytes();
  own.resize(most_buckets_);
  bucket_bytes_.resize(most_buckets_ * stages_.size());
  world
      .all_gather({own.data(), most, DType::I64},
                  {bucket_bytes_.data(), std::ssize(bucket_bytes_), DType::I64})
      .wait();
}

void StepWatch::begin(int step) {
  timed_ = options_.time_every > 0 && (step - 1) % options_.time_every == 0;
  trainer_.executor().set_tracing(timed_);
}

void StepWatch::exchange(const program::RowsBeyondPlan& own_rows, double own_seconds) {
  if (status_ != nullptr) status_->set(exchanging_);
  own_.assign({own_seconds, resident_bytes(), own_rows.layer_visits, own_rows.bytes,
               own_rows.largest_imbalance});
  if (timed_) {
    const RankTimes times = timer_.measure(trainer_.executor().intervals(), own_seconds);
    own_.insert(own_.end(), times.phases_s.begin(), times.phases_s.end());
    own_.insert(own_.end(), times.exposed_s.begin(), times.exposed_s.end());
    own_.insert(own_.end(), times.hidden_s.begin(), times.hidden_s.end());
    own_.insert(own_.end(), times.buckets_s.begin(), times.buckets_s.end());
    own_.resize(kBuckets + most_buckets_);
    trainer_.executor().set_tracing(false);
  }
  all_.resize(own_.size() * stages_.size());
  world_
      .all_gather({own_.data(), std::ssize(own_), DType::F64},
                  {all_.data(), std::ssize(all_), DType::F64})
      .wait();
}

double StepWatch::figure(int rank, std::size_t which) const {
  return all_[at(rank) * own_.size() + which];
}

double StepWatch::computing_s(int rank) const {
  double seconds = 0;
  for (std::size_t phase = 0; phase < kHost; ++phase) seconds += figure(rank, kPhases + phase);
  return seconds;
}

OverRanks StepWatch::over_ranks(std::size_t which) const {
  std::vector<int> ranks(stages_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return over(ranks, [&](int rank) { return figure(rank, which); });
}

program::RowsBeyondPlan StepWatch::rows_beyond_plan() const {
  double visits = 0;
  for (std::size_t rank = 0; rank < stages_.size(); ++rank)
    visits += figure(static_cast<int>(rank), kVisitsBeyondPlan);
  return {.layer_visits = visits,
          .bytes = over_ranks(kRoomBytes).max,
          .largest_imbalance = over_ranks(kImbalanceBeyondPlan).max};
}

program::StepTiming StepWatch::timing() const {
  program::StepTiming timing;
  for (std::size_t phase = 0; phase < kNumTimedPhases; ++phase)
    timing.phases_s[program::phase_names()[phase]] = over_ranks(kPhases + phase);
  for (std::size_t group = 0; group < kNumGroups; ++group) {
    const program::CommunicationTime time{.exposed_s = over_ranks(kExposed + group),
                                          .hidden_s = over_ranks(kHidden + group)};
    if (time.exposed_s.max > 0 || time.hidden_s.max > 0)
      timing.communication[std::string(name_of(static_cast<program::Group>(group)))] = time;
  }
  const int num_stages = *std::ranges::max_element(stages_) + 1;
  std::vector<double> computing;
  std::vector<double> of_stages;
  for (std::size_t rank = 0; rank < stages_.size(); ++rank)
    computing.push_back(computing_s(static_cast<int>(rank)));
  for (int stage = 0; stage < num_stages; ++stage) {
    std::vector<int> members;
    for (std::size_t rank = 0; rank < stages_.size(); ++rank)
      if (stages_[rank] == stage) members.push_back(static_cast<int>(rank));
    of_stages.push_back(over(members, [&](int rank) { return computing_s(rank); }).mean);
    const std::size_t first = static_cast<std::size_t>(members.front()) * most_buckets_;
    for (std::size_t bucket = 0; bucket < most_buckets_ && bucket_bytes_[first + bucket] > 0;
         ++bucket)
      timing.buckets.push_back(
          {.stage = stage,
           .bucket = static_cast<int>(bucket),
           .bytes = bucket_bytes_[first + bucket],
           .seconds = over(members, [&](int rank) { return figure(rank, kBuckets + bucket); })});
  }
  std::vector<int> ranks(stages_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  timing.busy_share =
      over(ranks, [&](int rank) { return computing_s(rank) / figure(rank, kSeconds); });
  timing.rank_balance = mean_over_max(computing);
  timing.stage_balance = mean_over_max(of_stages);
  return timing;
}

void StepWatch::complete(program::StepReport& report, double own_seconds) {
  exchange(report.experts ? report.experts->beyond_plan : program::RowsBeyondPlan{}, own_seconds);
  if (report.experts) report.experts->beyond_plan = rows_beyond_plan();
  const program::Workload& workload = trainer_.program().plan.workload;
  report.seconds = over_ranks(kSeconds).max;
  report.resident_bytes = over_ranks(kResident).max;
  report.samples_per_s = static_cast<double>(workload.global_batch_size) / report.seconds;
  report.tokens_per_s = report.samples_per_s * static_cast<double>(workload.seq_len);
  if (options_.job_peak_flop_per_s > 0)
    report.mfu = model_flops_ / (report.seconds * options_.job_peak_flop_per_s);
  if (const auto spike = spikes_.check(report.loss)) report.warnings.push_back(*spike);
  if (!timed_) return;
  report.timing = timing();
  std::vector<double> computing;
  for (std::size_t rank = 0; rank < stages_.size(); ++rank)
    computing.push_back(computing_s(static_cast<int>(rank)));
  for (SlowRanks::Found& found : slow_ranks_.check(computing)) {
    if (!found.warning.empty()) report.warnings.push_back(std::move(found.warning));
    if (!report.slow_rank) report.slow_rank = found.rank;
  }
}

}  // namespace meshplan::runtime
