#include "chunk_costs.hpp"

#include <algorithm>

#include "program/lower.hpp"

namespace meshplan::sim {
namespace {

using program::Plan;
using program::RecomputeKind;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Layers that differ only in their number share one block.
bool layers_are_alike(const models::ModelSpec& model) {
  if (model.moe) return false;
  return std::ranges::adjacent_find(model.layer_pattern, std::ranges::not_equal_to()) ==
         model.layer_pattern.end();
}

/// 1F1B with one forward more in the warm-up, so that a forward can be overlapped with the backward
/// of another micro-batch; one micro-batch more has both gradients apart.
std::vector<std::string> small_schedule(TaskMix mix, int pp, int num_microbatches) {
  program::Schedule schedule;
  for (int stage = 0; stage < pp; ++stage) {
    auto& tasks = schedule.tasks.emplace_back();
    const int ahead = pp - stage;
    for (int m = 0; m < std::min(ahead, num_microbatches); ++m) tasks.push_back({.microbatch = m});
    for (int m = 0; m < num_microbatches; ++m) {
      const bool overlapped = mix == TaskMix::Overlapped && m == 0;
      if (overlapped) {
        tasks.push_back({.kind = program::TaskKind::Overlapped,
                         .microbatch = m + ahead,
                         .backward_microbatch = m});
        continue;
      }
      if (m + ahead < num_microbatches) tasks.push_back({.microbatch = m + ahead});
      tasks.push_back({.kind = program::TaskKind::BackwardInput, .microbatch = m});
      tasks.push_back({.kind = program::TaskKind::BackwardWeight, .microbatch = m});
    }
  }
  const std::string text = program::to_csv(schedule);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
    lines.push_back(text.substr(begin, text.find('\n', begin) - begin));
  return lines;
}

/// A pipeline of few stages and micro-batches that has the plan's blocks.
Plan small_plan(const Plan& plan, RecomputeKind recompute, TaskMix mix,
                const std::vector<int>& layers) {
  const auto& p = plan.parallel;
  const int pp = static_cast<int>(layers.size());
  // The first writes gradients, the second adds; a third one where the first is overlapped.
  const int microbatches = mix == TaskMix::Overlapped ? pp + 2 : 2;
  Plan small = plan;
  small.cluster_json.clear();
  small.prediction.reset();
  small.zero_stage = small.zero_shard_group = 0;  // changes no task
  small.parallel = {.tp = p.tp, .cp = p.cp, .pp = pp, .sp = p.sp};
  small.rank_order = program::Mesh::kDefaultOrder;
  small.schedule = program::ScheduleKind::GPipe;
  small.custom_schedule.clear();
  small.workload.global_batch_size = microbatches * plan.micro_batch_size;
  if (mix != TaskMix::Full) {
    small.schedule = program::ScheduleKind::Custom;
    small.custom_schedule = small_schedule(mix, pp, microbatches);
  }
  small.recompute = {.kind = recompute, .num_layers = std::nullopt, .layers_per_stage = {}};
  small.layers_per_stage = layers;
  small.count_ends_as_layers = false;
  small.model.num_layers = 0;
  for (const int count : layers) small.model.num_layers += count;
  return small;
}

/// Gradients of a chunk as its last task makes them, layer by layer.
void add_gradients(const StagePrices& prices, int extra_layers, ChunkCost& chunk) {
  const bool split = chunk.tasks.weight.seconds > 0;
  const auto& last = split ? &TaskTimes::weight : &TaskTimes::backward;
  const double layer = (prices.layer_tasks.*last).seconds;
  const double layers = layer * (prices.num_layers + extra_layers);
  const bool has_head = prices.first_layer_part + 1 > at(prices.num_layers);
  const double others =
      std::max(0.0, (chunk.tasks.*last).seconds - layers);  // head, else embedding
  double ready = 0;
  const auto add_part = [&](const BucketParts& part, double seconds) {
    ready += seconds;
    for (const std::int64_t elements : part)
      chunk.ready.push_back({ready, static_cast<double>(elements)});
  };
  for (std::size_t i = 0; i < prices.parts.size(); ++i) {
    const bool is_layer =
        i + at(prices.num_layers) > prices.first_layer_part && i <= prices.first_layer_part;
    if (!is_layer) {
      add_part(prices.parts[i], has_head == (i == 0) ? others : 0);
      continue;
    }
    const int repeats = i == prices.first_layer_part ? 1 + extra_layers : 1;
    for (int more = 0; more < repeats; ++more) add_part(prices.parts[i], layer);
  }
}

}  // namespace

std::size_t CacheKey::Hash::operator()(const CacheKey& key) const {
  std::uint64_t hash = 0x9E3779B97F4A7C15ULL;  // the golden ratio's digits (Knuth, TAOCP 3, 6.4)
  for (const std::int64_t number : key.numbers_) {
    hash ^= static_cast<std::uint64_t>(number);
    hash *= 0xFF51AFD7ED558CCDULL;  // MurmurHash3's finalizer
    hash ^= hash >> 32;
  }
  return hash;
}

ChunkCosts::Set& ChunkCosts::set_of(const Plan& plan, RecomputeKind recompute, TaskMix mix,
                                    const GroupPlacement& tp, const GroupPlacement& cp) {
  constexpr int kLayersPerStage = 2;  // the second says what one more costs
  const bool alike = layers_are_alike(plan.model);
  const auto& p = plan.parallel;
  const int pp = alike ? std::min(p.pp * p.vpp, 3) : p.pp * p.vpp;
  key_.clear();
  key_.add_all(p.tp, p.sp, pp, plan.micro_batch_size, plan.workload.seq_len,
               plan.workload.precision, plan.workload.optimizer.kind, recompute, mix);
  key_.add(tp.domains);
  if (p.cp > 1) {
    key_.add_all(p.cp, plan.context_parallel);
    key_.add(cp.domains);
  }
  std::vector<int> layers;
  if (!alike) {
    layers = program::resolved_layers_per_stage(plan);
    key_.add(layers);
  }
  if (const auto found = sets_.find(key_); found != sets_.end()) return found->second;
  if (alike) layers.assign(at(pp), kLayersPerStage);
  const Plan small = small_plan(plan, recompute, mix, layers);
  const BlockPricing pricing{.cluster = &cluster_, .table = &table_, .tp = tp, .cp = cp};
  Set set{.stages = {}, .alike = alike, .chunks = {}};
  for (int stage = 0; stage < pp; ++stage)
    set.stages.push_back(price_stage(program::lower(small, stage), pricing));
  return sets_.emplace(key_, std::move(set)).first->second;
}

const ChunkCost& ChunkCosts::chunk_of(const Plan& plan, Set& set, Set* plain, int number,
                                      int num_layers, int plain_layers) {
  const int virtual_stages = plan.parallel.pp * plan.parallel.vpp;
  const int small = static_cast<int>(set.stages.size());
  int which = number;
  if (set.alike && number > 0)
    which = number + 1 == virtual_stages ? small - 1 : std::min(number, small - 2);
  const std::int64_t key =
      (std::int64_t{which} << 40) + (std::int64_t{num_layers} << 20) + plain_layers;
  const auto found = set.chunks.find(key);
  if (found != set.chunks.end()) return found->second;
  const StagePrices& prices = set.stages[at(which)];
  const StagePrices& other = plain_layers > 0 ? plain->stages[at(which)] : prices;
  return set.chunks.emplace(key, make(prices, other, num_layers, plain_layers)).first->second;
}

ChunkCost ChunkCosts::make(const StagePrices& prices, const StagePrices& plain, int num_layers,
                           int plain_layers) const {
  const int extra = num_layers - prices.num_layers;
  // All ranks of a CPU host want its cores at once.
  const double turns =
      cluster_.device.kind == DeviceKind::Cpu
          ? std::max(1.0, static_cast<double>(cluster_.devices_per_node) / cluster_.cores_per_host)
          : 1.0;
  ChunkCost chunk;
  chunk.tasks = prices.tasks.plus(extra - plain_layers, prices.layer_tasks)
                    .plus(plain_layers, plain.layer_tasks);
  chunk.prelude = prices.prelude;
  chunk.num_layers = num_layers;
  chunk.elements = static_cast<double>(prices.parameter_elements + extra * prices.layer_elements);
  chunk.partial_elements =
      static_cast<double>(prices.partial_elements + extra * prices.layer_partial_elements);
  chunk.tied_elements = static_cast<double>(prices.tied_elements);
  chunk.load_seconds = prices.load_seconds;
  chunk.update_seconds = turns * (prices.update_seconds + extra * prices.layer_update_seconds);
  chunk.norm_seconds = turns * (prices.norm_seconds + extra * prices.layer_norm_seconds);
  chunk.layer_copied_parts = prices.layer_copied_parts;
  chunk.transient_bytes = prices.transient_bytes;
  chunk.boundary_bytes = prices.boundary_bytes;
  chunk.scalar_bytes = prices.scalar_bytes;
  for (std::size_t keep = 0; keep < program::kNumKeeps; ++keep)
    chunk.kept_bytes[keep] = prices.kept_bytes[keep] +
                             (extra - plain_layers) * prices.layer_kept_bytes[keep] +
                             plain_layers * plain.layer_kept_bytes[keep];
  add_gradients(prices, extra, chunk);
  return chunk;
}

}  // namespace meshplan::sim
