#include "estimator/zero_stage.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "estimator/compressed_reduction.hpp"
#include "estimator/stage_costs.hpp"
#include "prices/element_bytes.hpp"
#include "prices/offload.hpp"
#include "program/cost/cost.hpp"
#include "program/cost/step_cost.hpp"
#include "schedules/host_thread.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;
using program::Plan;

/// Consecutive layers that ZeRO-2 and 3 reduce, and with 3 gather, at once; in the order of the
/// backward pass.
struct Unit {
  double forward = 0;  // seconds, without what is streamed
  double backward = 0;
  double dense = 0;  // elements
  double experts = 0;
  FrozenElements frozen;  // with stage 3
  bool backward_reads = false;
  double fetch = 0;   // seconds: of owned weights, from the host
  double gather = 0;  // seconds
  double reduce = 0;
  double compress = 0;  // before it
  double accumulate = 0;
  double at_end = 0;       // once a step: hybrid sharding's sum over replicas, settling of errors
  double error_bytes = 0;  // of compression
  double slot_bytes = 0;
};

double gathered_elements(const Unit& unit) {
  return unit.dense + unit.experts + unit.frozen.dense + unit.frozen.experts;
}

std::vector<Unit> units_of(const Plan& plan, const ChunkCost& chunk, DataGroups& groups,
                           const Cluster& cluster) {
  std::vector<Unit> units;
  units.reserve(chunk.layers.size());
  bool full = true;
  for (const LayerCost& layer : chunk.layers) {
    if (full) units.emplace_back();
    Unit& unit = units.back();
    unit.forward += layer.forward;
    unit.backward += layer.backward;
    unit.dense += layer.dense;
    unit.experts += layer.experts;
    if (plan.zero_stage == 3) {
      unit.frozen.dense += layer.frozen.dense;
      unit.frozen.experts += layer.frozen.experts;
    }
    unit.backward_reads = unit.backward_reads || layer.backward_reads;
    for (const std::int64_t part : layer.copied_parts)
      unit.reduce += groups.kv_copies.seconds(Collective::AllReduce,
                                              static_cast<double>(part) * kFp32Bytes, cluster);
    full = gathered_elements(unit) * kFp32Bytes >= static_cast<double>(plan.bucket_bytes);
  }
  for (Unit& unit : units) {
    unit.dense = padded(unit.dense, groups.dense_shards.size());
    unit.experts = padded(unit.experts, groups.expert_shards.size());
    unit.frozen.dense = padded(unit.frozen.dense, groups.dense_shards.size());
    unit.frozen.experts = padded(unit.frozen.experts, groups.expert_shards.size());
  }
  return units;
}

/// Adds what was reduced of a micro-batch to the owned gradients.
double accumulate_seconds(const Plan& plan, double elements, bool expert, DataGroups& groups,
                          const OperatorTable& table, const Cluster& cluster) {
  if (elements <= 0) return 0;
  const std::int64_t key = 2 * static_cast<std::int64_t>(elements) + (expert ? 1 : 0);
  const auto [entry, fresh] = groups.accumulate.try_emplace(key, 0.0);
  if (!fresh) return entry->second;
  const program::StepOp step{.work = program::StepWork::AccumulateGradients,
                             .range = {0, static_cast<std::int64_t>(elements)},
                             .bucket = 0,
                             .expert = expert};
  const program::OperationCost cost = program::step_cost(plan, step);
  entry->second = seconds_on_busy_host(
      table.price(program::step_signature(plan, step), cost.flops, static_cast<double>(cost.bytes)),
      cluster);
  return entry->second;
}

/// The sum of a unit's gradients: micro-batch by micro-batch, and with hybrid sharding of the owned
/// parts at the end of the step.
void price_reduction(const Plan& plan, bool expert, Unit& unit, DataGroups& groups,
                     const OperatorTable& table, const Cluster& cluster) {
  const double elements = expert ? unit.experts : unit.dense;
  if (elements <= 0) return;
  PricedGroup& shards = groups.shards(expert);
  PricedGroup& replicas = groups.replicas(expert);
  const CompressedReduction compressed =
      plan.compression.kind == program::CompressionKind::None
          ? CompressedReduction{}
          : compressed_reduction(plan, elements, expert, groups, table, cluster);
  unit.error_bytes += compressed.error_bytes;
  unit.slot_bytes = std::max(unit.slot_bytes, compressed.slot_bytes);
  unit.at_end += compressed.settle_seconds;
  if (compressed.slot_bytes > 0 && replicas.size() == 1) {
    unit.compress += compressed.compress_seconds;
    unit.reduce += compressed.communication_seconds;
    unit.accumulate += compressed.sum_seconds;
    return;
  }
  unit.reduce += shards.seconds(Collective::ReduceScatter, elements * kFp32Bytes, cluster);
  unit.accumulate += accumulate_seconds(plan, elements, expert, groups, table, cluster);
  unit.at_end +=
      compressed.slot_bytes > 0
          ? compressed.communication_seconds + compressed.compress_seconds + compressed.sum_seconds
          : replicas.seconds(Collective::AllReduce, elements / shards.size() * kFp32Bytes, cluster);
}

/// Weights of so many elements come from the host before they are gathered.
double fetch_seconds(const Plan& plan, double elements, int shards, const Cluster& cluster) {
  if (!plan.offload_parameters || elements <= 0) return 0;
  return host_copy_seconds(
      elements / shards * static_cast<double>(size_of(plan.workload.precision)), cluster);
}

void price_units(const Plan& plan, std::vector<Unit>& units, DataGroups& groups,
                 const OperatorTable& table, const Cluster& cluster) {
  for (Unit& unit : units)
    for (const bool expert : {false, true}) {
      price_reduction(plan, expert, unit, groups, table, cluster);
      if (plan.zero_stage < 3) continue;
      const double trained = expert ? unit.experts : unit.dense;
      const double frozen = expert ? unit.frozen.experts : unit.frozen.dense;
      for (const double elements : {trained, frozen}) {  // buckets of their own
        if (elements <= 0) continue;
        unit.gather += gather_seconds(plan, elements, expert, groups, cluster);
        unit.fetch += fetch_seconds(plan, elements, groups.shards(expert).size(), cluster);
      }
    }
}

/// A task's work on a unit.
struct Visit {
  double compute = 0;
  double fetch = 0;   // of the unit's weights from the host
  double gather = 0;  // of them, before it
  double reduce = 0;  // of its gradients, after it
  double accumulate = 0;
  bool backward = false;
};

/// Tasks in a row, as unit_stream.cpp of program issues them: the gather of the next unit when one
/// begins, its reduction when it is over, and the sum of that when the next one is.
class StreamPlayer {
 public:
  StreamPlayer(const std::vector<Unit>& units, const Cluster& cluster, bool one_thread)
      : units_(units), cluster_(cluster), one_thread_(one_thread) {}

  void add_task(bool backward) {
    const std::size_t count = units_.size();
    visits_.reserve(kMostTasks * count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t which = backward ? i : count - 1 - i;
      const Unit& unit = units_[which];
      Visit visit{.compute = backward ? unit.backward + unit.compress : unit.forward,
                  .backward = backward};
      if (!backward || unit.backward_reads) {
        if (last_read_ != static_cast<int>(which)) {
          visit.fetch = unit.fetch;
          visit.gather = unit.gather;
        }
        last_read_ = static_cast<int>(which);
      }
      if (backward) {
        visit.reduce = unit.reduce;
        visit.accumulate = unit.accumulate;
      }
      // Nothing happens there: the next gather is issued when the unit before it begins.
      const bool empty = backward && !unit.backward_reads && visit.compute + visit.reduce <= 0;
      if (!empty) visits_.push_back(visit);
    }
    ends_of_tasks_.push_back(visits_.size());
  }

  /// @returns the time at which each task is over, and last of all the last sum
  std::vector<double> play() { return one_thread_ ? play_one_thread() : play_lanes(); }

 private:
  std::vector<double> play_one_thread() const {
    std::vector<double> ends;
    double now = 0;
    std::size_t begin = 0;
    for (const std::size_t end : ends_of_tasks_) {
      for (std::size_t v = begin; v < end; ++v)
        now += visits_[v].compute + visits_[v].fetch + visits_[v].gather + visits_[v].reduce +
               visits_[v].accumulate;
      ends.push_back(now);
      begin = end;
    }
    ends.push_back(now);
    return ends;
  }

  std::vector<double> play_lanes() {
    std::vector<double> ends;
    double end = 0;  // of the visit before
    std::size_t task = 0;
    fetched_ = visits_.empty() ? 0 : visits_.front().fetch;
    gathered_ = visits_.empty() ? 0 : fetched_ + visits_.front().gather;
    lane_ = gathered_;
    moving_ = gathered_ - fetched_;
    for (std::size_t v = 0; v < visits_.size(); ++v) {
      const double weights = gathered_;
      if (v + 1 < visits_.size()) {  // into the slot that the visit before has read
        const Visit& next = visits_[v + 1];
        if (next.fetch > 0) fetched_ = std::max(fetched_, end) + next.fetch;
        move(next.gather, next.fetch > 0 ? fetched_ : end);
        if (next.gather > 0) gathered_ = lane_;
      }
      if (v > 0 && visits_[v - 1].backward) end = reduce(visits_[v - 1], end);
      end = std::max(end, weights) + visits_[v].compute;
      computing_ += visits_[v].compute;
      for (; task < ends_of_tasks_.size() && ends_of_tasks_[task] == v + 1; ++task)
        ends.push_back(slowed(end));  // of a backward without visits, too
    }
    if (!visits_.empty() && visits_.back().backward) {
      end = reduce(visits_.back(), end);
      end = std::max(end, reduced_) + accumulate_;
    }
    ends.push_back(slowed(end));
    return ends;
  }

  void move(double seconds, double ready) {
    if (seconds <= 0) return;
    lane_ = std::max(lane_, ready) + seconds;
    moving_ += seconds;
  }

  /// @returns when computation goes on: after the sum of what was reduced before
  double reduce(const Visit& visit, double end) {
    const double ready = end;
    if (accumulate_ > 0) {
      end = std::max(end, reduced_) + accumulate_;
      computing_ += accumulate_;
    }
    move(visit.reduce, ready);
    reduced_ = lane_;
    accumulate_ = visit.accumulate;
    return end;
  }

  /// What moves beside compute takes its share of the device from it.
  double slowed(double end) const {
    const double hidden = std::max(0.0, computing_ + moving_ - end);
    return end + cluster_.communication.device_share * hidden;
  }

  const std::vector<Unit>& units_;
  const Cluster& cluster_;
  bool one_thread_;
  int last_read_ = -1;
  static constexpr std::size_t kMostTasks = 6;
  std::vector<Visit> visits_;
  std::vector<std::size_t> ends_of_tasks_;
  double fetched_ = 0;  // from the host
  double lane_ = 0, gathered_ = 0, reduced_ = 0, accumulate_ = 0;
  double computing_ = 0, moving_ = 0;
};

/// Once the pipeline is full; with one chunk a rank 1F1B's forwards and backwards take turns, so
/// that each begins with the unit that the other ended with.
StreamedTasks streamed_tasks(const Plan& plan, const std::vector<Unit>& units,
                             const Cluster& cluster) {
  const bool turns = plan.parallel.vpp == 1 && plan.schedule == program::ScheduleKind::OneFOneB;
  StreamPlayer player(units, cluster, moves_only_in_waits(plan, cluster));
  for (const bool backward : turns ? std::vector<bool>{false, true, false, true, false, true}
                                   : std::vector<bool>{false, false, true, true})
    player.add_task(backward);
  const std::vector<double> ends = player.play();
  const std::size_t last = ends.size() - 2;
  const std::size_t forward = turns ? last - 1 : 1;
  return {.forward = ends[forward] - ends[forward - 1],
          .backward = ends[last] - ends[last - 1],
          .tail = ends[last + 1] - ends[last]};
}

struct Gather {
  double needed = 0;
  double seconds = 0;
};

/// Stable. Most lists are in the order of the backward pass, but for a first one needed at once:
/// these are turned round, layer by layer.
void sort_by_need(std::vector<Gather>& gathers) {
  if (gathers.empty()) return;
  const auto first = gathers.begin() + (gathers.front().needed > 0 ? 0 : 1);
  if (std::ranges::is_sorted(first, gathers.end(), std::greater(), &Gather::needed)) {
    std::reverse(first, gathers.end());
    for (auto begin = first; begin != gathers.end();) {
      const auto end = std::find_if(
          begin, gathers.end(), [&](const Gather& other) { return other.needed != begin->needed; });
      std::reverse(begin, end);
      begin = end;
    }
  } else {
    std::ranges::stable_sort(gathers, {}, &Gather::needed);
  }
}

/// One after another, beside the first forward: how much later it ends than without.
void add_gathers(std::vector<Gather>& gathers, ZeroStage& stage) {
  sort_by_need(gathers);
  for (const Gather& gather : gathers) {
    stage.gathers += gather.seconds;
    stage.gather_delay = std::max(stage.gather_delay, stage.gathers - gather.needed);
  }
  if (!gathers.empty()) stage.first_gather = gathers.front().seconds;
}

/// What is gathered beside the first forward takes its share of the device from it.
double slowdown_by_gathers(const std::vector<const ChunkCost*>& chunks, const ZeroStage& stage,
                           const Cluster& cluster) {
  TaskTime forward;
  for (const ChunkCost* chunk : chunks) forward = forward.plus(1, chunk->tasks.forward);
  if (forward.seconds <= 0) return 0;
  const double computing = std::min(1.0, forward.forward / forward.seconds);
  const double beside = std::min(stage.gathers - stage.gather_delay, forward.seconds);
  return cluster.communication.device_share * std::max(0.0, beside) * computing;
}

}  // namespace

ZeroStage zero_stage(const StagePricing& pricing, const std::vector<const ChunkCost*>& chunks,
                     double late, const StageBuckets& buckets) {
  const Plan& plan = pricing.plan;
  const Cluster& cluster = pricing.cluster;
  DataGroups& groups = pricing.where.data;
  const bool of_tasks = pricing.part >= PricedPart::Tasks;
  const bool of_step = pricing.part >= PricedPart::Step;
  ZeroStage stage;
  std::vector<double> begin;  // of each chunk's first forward, at the earliest
  begin.reserve(chunks.size());
  for (double now = 0; const ChunkCost* chunk : chunks) {
    begin.push_back(now);
    now += chunk->tasks.forward.seconds;
    stage.untrained += chunk->sums.untrained_elements;
  }
  std::vector<Gather> gathers;
  if (of_step) gathers.reserve(1 + buckets.all.size());
  const auto add_whole = [&](double all, bool expert) {
    stage.whole += all;
    stage.owned += all / groups.shards(expert).size();
    stage.num_buckets += 1;
  };
  if (late > 0) {
    const double all = padded(late, groups.shards(false).size());
    add_whole(all, false);
    if (of_step)
      gathers.push_back({0, gather_seconds(plan, all, false, groups, cluster) +
                                fetch_seconds(plan, all, groups.shards(false).size(), cluster)});
  }
  if (plan.zero_stage == 1)
    for (const Bucket& bucket : buckets.all) {
      add_whole(bucket.whole, bucket.expert);
      if (!of_step) continue;
      const BucketPart& part = buckets.parts[bucket.end_part - 1];  // of its first chunk
      const double needed = begin[part.chunk] + chunks[part.chunk]->ready[part.last].needed;
      gathers.push_back({needed, bucket.gather_seconds});
    }
  for (std::size_t c = 0; plan.zero_stage >= 2 && c < chunks.size(); ++c) {
    std::vector<Unit> units = units_of(plan, *chunks[c], groups, cluster);
    if (plan.zero_stage == 3)
      for (const LayerCost& layer : chunks[c]->layers)
        stage.frozen += layer.frozen.dense + layer.frozen.experts;
    if (of_tasks || plan.compression.kind != program::CompressionKind::None)
      price_units(plan, units, groups, pricing.table, cluster);
    if (of_tasks) stage.tasks.push_back(streamed_tasks(plan, units, cluster));
    double needed = begin[c] + chunks[c]->tasks.forward.seconds;
    for (const Unit& unit : units) {
      needed -= unit.forward;
      stage.largest_unit = std::max(stage.largest_unit, gathered_elements(unit));
      stage.largest_trained_unit = std::max(stage.largest_trained_unit, unit.dense + unit.experts);
      stage.owned_frozen += unit.frozen.dense / groups.shards(false).size() +
                            unit.frozen.experts / groups.shards(true).size();
      if (of_tasks) stage.tasks.back().at_end += unit.at_end;
      stage.compression_error_bytes += unit.error_bytes;
      stage.compression_slot_bytes = std::max(stage.compression_slot_bytes, unit.slot_bytes);
      for (const bool expert : {false, true}) {
        const double elements = expert ? unit.experts : unit.dense;
        if (elements <= 0) continue;
        const int shards = groups.shards(expert).size();
        stage.streamed += elements;
        stage.owned_streamed += elements / shards;
        stage.largest_owned = std::max(stage.largest_owned, elements / shards);
        stage.num_buckets += 1;
        if (plan.zero_stage == 2 && of_step)
          gathers.push_back(
              {std::max(0.0, needed), gather_seconds(plan, elements, expert, groups, cluster)});
      }
    }
  }
  if (!of_step) return stage;
  add_gathers(gathers, stage);
  stage.gather_delay += slowdown_by_gathers(chunks, stage, cluster);
  return stage;
}

double parameter_bytes(const Plan& plan, double elements, double frozen, const ZeroStage& zero,
                       bool on_gpu) {
  const bool sgd = plan.workload.optimizer.kind == program::OptimizerKind::Sgd;
  const bool master = plan.workload.precision != DType::F32;
  const auto weight = static_cast<double>(size_of(plan.workload.precision));
  const bool elsewhere = plan.offload_optimizer && on_gpu;
  const double optimizer = elsewhere ? 0 : kFp32Bytes * (1 + (sgd ? 0 : 1) + (master ? 1 : 0));
  if (plan.zero_stage == 0) return elements * (weight + kFp32Bytes + optimizer) + frozen * weight;
  const double gradients =
      zero.whole + (plan.zero_stage >= 2 ? zero.owned_streamed : zero.streamed);
  const double weights = zero.whole + (plan.zero_stage == 3 ? zero.owned_streamed : zero.streamed);
  constexpr double kUnitSlots = 2;  // one in use, one on its way
  const double slots =
      kUnitSlots * ((plan.zero_stage >= 2 ? zero.largest_trained_unit * kFp32Bytes : 0) +
                    (plan.zero_stage == 3 ? zero.largest_unit * weight : 0));
  // On the host those that a rank owns; on the device, besides, those that it holds whole.
  const double frozen_whole = frozen - zero.frozen;
  const double whole = zero.whole + zero.untrained + frozen_whole;
  const double streamed = zero.owned_streamed + zero.owned_frozen;
  const double offloaded = !plan.offload_parameters ? 0
                           : on_gpu                 ? -streamed * weight
                                                    : whole * weight;
  return offloaded + weights * weight + gradients * kFp32Bytes +
         (zero.owned + zero.owned_streamed) * optimizer +
         zero.untrained * (weight + kFp32Bytes + optimizer) +
         (frozen_whole + zero.owned_frozen) * weight + slots;
}

}  // namespace meshplan::sim
