#include "train/rank_times.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::runtime {
namespace {

using program::Phase;

// Indexes into program::phase_names().
enum TimedPhase { Forward, Recompute, InputGrad, WeightGrad, Optimizer, Host, Communication, Idle };
static_assert(Idle + 1 == kNumTimedPhases);

TimedPhase timed_phase_of(const program::Operation& operation) {
  if (operation.lane == program::Lane::Host) return Host;
  switch (operation.phase) {
    case Phase::Forward:
      return Forward;
    case Phase::Recompute:
      return Recompute;
    case Phase::InputGrad:
      return InputGrad;
    case Phase::WeightGrad:
      return WeightGrad;
    case Phase::Reduce:
    case Phase::Optimizer:
      return Optimizer;
  }
  throw InvariantError("phase without a place in a step");
}

/// Reduces gradients over ranks that hold the same parameters.
const program::FlatCollectiveOp* as_bucket(const program::Operation& operation) {
  const auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work);
  if (flat == nullptr || operation.lane != program::Lane::Dp ||
      flat->region == program::Region::Scalars)
    return nullptr;
  const auto [collective, group] = std::pair(flat->collective.collective, flat->collective.group);
  const bool reduces = collective == program::Collective::AllReduce ||
                       collective == program::Collective::ReduceScatter;
  return reduces && group != program::Group::Embedding ? flat : nullptr;
}

int group_of(const program::Operation& operation) {
  if (std::holds_alternative<program::PeerOp>(operation.work))
    return static_cast<int>(program::Group::Pp);
  if (const auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work))
    return static_cast<int>(flat->collective.group);
  if (const auto* work = std::get_if<program::CollectiveOp>(&operation.work))
    return static_cast<int>(work->group);
  return -1;
}

struct Piece {
  double start_s = 0;
  double end_s = 0;
  int phase = 0;
  int group = -1;
};

/// Adds a stretch of time in which exactly `active` were in progress.
void add_stretch(const std::vector<const Piece*>& active, double seconds, RankTimes& times) {
  const Piece* computing = nullptr;
  const Piece* awaited = nullptr;
  std::uint32_t groups = 0;
  for (const Piece* piece : active) {
    if (piece->group >= 0) {
      groups |= 1U << piece->group;
      if (awaited == nullptr || piece->end_s < awaited->end_s) awaited = piece;
    } else if (computing == nullptr || computing->phase == Host) {
      computing = piece;
    }
  }
  if (computing != nullptr) {
    times.phases_s[at(computing->phase)] += seconds;
    for (std::size_t group = 0; group < times.hidden_s.size(); ++group)
      if ((groups >> group & 1U) != 0) times.hidden_s[group] += seconds;
  } else if (awaited != nullptr) {
    times.phases_s[Communication] += seconds;
    times.exposed_s[at(awaited->group)] += seconds;
  }
}

}  // namespace

double RankTimes::computing_s() const {
  return std::accumulate(phases_s.begin(), phases_s.begin() + Host, 0.0);
}

RankTimer::RankTimer(const program::Program& program) {
  kinds_.reserve(program.instances.size());
  for (const program::OperationInstance& instance : program.instances) {
    const program::Operation& operation = program::operation_of(program, instance);
    Kind kind = kind_of(operation);
    if (const auto* bucket = as_bucket(operation)) {
      kind.bucket = static_cast<int>(bucket_bytes_.size());
      bucket_bytes_.push_back(bucket->range.size() * size_of(bucket->collective.dtype));
    }
    kinds_.push_back(kind);
  }
}

RankTimer::Kind RankTimer::kind_of(const program::Operation& operation) {
  const Kind kind{.phase = timed_phase_of(operation), .group = group_of(operation)};
  require_invariant(kind.group < kNumGroups, "a process group without a place in RankTimes");
  return kind;
}

RankTimes RankTimer::measure(std::span<const Interval> intervals, double step_s) const {
  require_invariant(intervals.size() == kinds_.size(), "an interval for each instance");
  RankTimes times;
  times.buckets_s.resize(bucket_bytes_.size());
  std::vector<Piece> pieces;
  std::vector<double> boundaries;
  pieces.reserve(intervals.size());
  boundaries.reserve(2 * intervals.size());
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const auto [start, end] = intervals[i];
    const Kind& kind = kinds_[i];
    if (kind.bucket >= 0) times.buckets_s[at(kind.bucket)] = end - start;
    pieces.push_back({start, end, kind.phase, kind.group});
    boundaries.push_back(start);
    boundaries.push_back(end);
  }
  std::ranges::sort(boundaries);
  std::ranges::sort(pieces, {}, &Piece::start_s);
  std::vector<const Piece*> active;
  std::size_t next = 0;
  for (std::size_t i = 0; i + 1 < boundaries.size(); ++i) {
    const double begin = boundaries[i];
    if (boundaries[i + 1] <= begin) continue;
    while (next < pieces.size() && pieces[next].start_s <= begin) active.push_back(&pieces[next++]);
    std::erase_if(active, [&](const Piece* piece) { return piece->end_s <= begin; });
    add_stretch(active, boundaries[i + 1] - begin, times);
  }
  const double used = std::accumulate(times.phases_s.begin(), times.phases_s.end(), 0.0);
  times.phases_s[Idle] = std::max(0.0, step_s - used);
  return times;
}

}  // namespace meshplan::runtime
