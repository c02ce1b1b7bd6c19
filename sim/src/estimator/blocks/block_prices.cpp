#include "estimator/blocks/block_prices.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/units.hpp"
#include "program/cost/cost.hpp"
#include "program/shard_layout.hpp"
#include "schedules/host_thread.hpp"
#include "sim/engine/step_prediction.hpp"

namespace meshplan::sim {
namespace {

using program::OperationInstance;
using program::Phase;
using program::Program;
using program::StepOp;
using program::StepWork;

class StagePricer {
 public:
  StagePricer(const Program& program, const OperationForms::Numbers& forms,
              const BlockPricing& pricing)
      : program_(program),
        forms_(forms),
        pricing_(pricing),
        cluster_(*pricing.cluster),
        of_task_(program.tasks.size()) {
    for (const auto& layer : program.layers) stage_.num_layers += layer.layer.has_value() ? 1 : 0;
    const auto& instances = program.instances;
    for (std::size_t i = 0; i < instances.size(); ++i) {
      if (!instances[i].task) continue;
      auto& [begin, end] = of_task_[at(*instances[i].task)];
      if (end == 0) begin = i;
      end = i + 1;
    }
  }

  StagePrices run() {
    price_tasks();
    price_once();
    price_step();
    count_parameters();
    count_memory();
    return std::move(stage_);
  }

 private:
  // ------------------------------------------------------------ time

  /// Until the rank runs again after a communication whose price does not contain that yet.
  double wake_after(const Price& price) const {
    const bool wakes = cluster_.oversubscribed() && price.source == PriceSource::Formula;
    return wakes ? cluster_.communication.oversubscription_wake_us / kMicroseconds : 0;
  }

  const GroupPlacement& placement_of(program::Group group) const {
    switch (group) {
      case program::Group::Cp:
        return pricing_.cp;
      case program::Group::Ep:
        return pricing_.ep;
      case program::Group::Etp:
        return pricing_.etp;
      case program::Group::EpWithin:
        return pricing_.ep_within;
      case program::Group::EpAcross:
        return pricing_.ep_across;
      default:
        return pricing_.tp;
    }
  }

  OperationPrice price_of(const OperationInstance& instance) {
    const program::OperationRef& ref = instance.operation;
    if (!ref.block) return price(instance);
    const auto form = static_cast<std::uint64_t>(
        forms_[2 * at(*ref.block) + (ref.backward ? 1 : 0)][at(ref.index)]);
    const std::uint64_t key =
        (std::uint64_t{pricing_.context} << 32) + 2 * form + (instance.accumulate ? 1 : 0);
    const auto found = pricing_.known_operations->find(key);
    if (found != pricing_.known_operations->end()) return found->second;
    return pricing_.known_operations->emplace(key, price(instance)).first->second;
  }

  OperationPrice price(const OperationInstance& instance) {
    const program::Operation& operation = program::operation_of(program_, instance);
    if (const auto* collective = std::get_if<program::CollectiveOp>(&operation.work)) {
      const auto price_of_bytes = [&](std::int64_t bytes) {
        return price_collective(collective->collective, bytes, placement_of(collective->group),
                                cluster_);
      };
      const std::int64_t bytes = program::message_bytes(program_, instance);
      const Price price = price_of_bytes(bytes);
      const double factor = progress_factor(program_.plan, cluster_);
      const double wake = wake_after(price);
      return {.seconds = price.seconds * factor + wake,
              .at_bandwidth = price_of_bytes(kMuchLarger * bytes).seconds * factor / kMuchLarger,
              .wake = wake};
    }
    signature_.clear();
    program::add_signature(signature_, program_, instance);
    if (!signature_.empty())
      return {.seconds = seconds_of(signature_, program::operation_cost(program_, instance))};
    return {.seconds = cluster_.device.launch_us / kMicroseconds};
  }

  double seconds_of(const std::string& signature, const program::OperationCost& cost) const {
    const auto bytes = static_cast<double>(cost.bytes);
    KnownPrice& known = (*pricing_.known)[signature];
    if (known.flops != cost.flops || known.bytes != bytes)
      known = {cost.flops, bytes, 0};
    else if (known.seconds > 0)
      return known.seconds;
    known.seconds =
        seconds_on_busy_host(pricing_.table->price(signature, cost.flops, bytes), cluster_);
    return known.seconds;
  }

  void add(TaskTime& time, Phase phase, double seconds) const {
    if (phase == Phase::Forward)
      time.forward += seconds;
    else if (phase == Phase::Recompute)
      time.recompute += seconds;
    else
      time.backward += seconds;
  }

  /// Plays one task alone: lanes in issue order, or one thread that waits for its communication.
  /// @returns the time after each layer that the task visits, in its order
  std::vector<std::pair<int, TaskTime>> play(int task) {
    const bool one_thread = moves_only_in_waits(program_.plan, cluster_);
    const auto [begin, end] = of_task_[at(task)];
    std::vector<double> finish(end - begin, 0.0);
    std::array<double, program::kNumLanes> lane_free{}, at_bandwidth{};
    std::vector<std::pair<int, TaskTime>> after;
    TaskTime time;
    double alone = 0, computing = 0, moving = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const OperationInstance& instance = program_.instances[i];
      if (instance.task != task || !instance.layer) continue;
      if (needs_gradient(instance, task) && !prelude_) prelude_ = time.seconds;
      const program::Operation& operation = program::operation_of(program_, instance);
      if (operation.once_per_step) continue;
      double& lane = lane_free[one_thread ? 0 : static_cast<std::size_t>(operation.lane)];
      double start = lane;
      for (const int wait : waits_of(program_, instance))
        if (at(wait) >= begin) start = std::max(start, finish[at(wait) - begin]);
      const auto [seconds, seconds_at_bandwidth, wake] = price_of(instance);
      time.operations += 1;
      finish[i - begin] = lane = start + seconds;
      if (operation.lane == program::Lane::Compute) {
        add(time, operation.phase, seconds);
        computing += seconds;
      } else {
        time.idle += wake;
        moving += seconds;
        time.moving += seconds;
        if (operation.lane == program::Lane::Cp) time.context += seconds;
        if (program::exchanges_with_experts(operation.lane)) time.experts += seconds;
        if (operation.phase != Phase::Recompute)
          at_bandwidth[static_cast<std::size_t>(operation.lane)] += seconds_at_bandwidth;
        time.link = std::ranges::max(at_bandwidth);
      }
      alone = std::max(alone, lane);
      // What moves beside compute takes its share of the device from it.
      const double hidden = std::max(0.0, computing + moving - alone);
      time.seconds = alone + cluster_.communication.device_share * hidden;
      if (after.empty() || after.back().first != instance.layer)
        after.push_back({*instance.layer, {}});
      after.back().second = time;
    }
    return after;
  }

  /// Does it wait for what this backward task receives from the next stage?
  bool needs_gradient(const OperationInstance& instance, int task) const {
    return std::ranges::any_of(waits_of(program_, instance), [&](int wait) {
      const OperationInstance& other = program_.instances[at(wait)];
      return other.task == task &&
             program::operation_of(program_, other).lane == program::Lane::PpRecvBackward;
    });
  }

  std::optional<int> task_index(program::TaskKind kind, int number) const {
    for (int i = 0; i < static_cast<int>(program_.tasks.size()); ++i)
      if (program_.tasks[at(i)].kind == kind && number-- == 0) return i;
    return std::nullopt;
  }

  /// The whole task, and what its second model layer added to the first. A task that the program
  /// does not have takes nothing.
  void price_task(program::TaskKind kind, int number, TaskTime TaskTimes::*which) {
    const std::optional<int> task = task_index(kind, number);
    if (!task) return;
    const auto after = play(*task);
    if (after.empty()) return;
    stage_.tasks.*which = after.back().second;
    std::vector<TaskTime> model_layers;
    for (const auto& [index, time] : after)
      if (program_.layers[at(index)].layer) model_layers.push_back(time);
    if (model_layers.size() >= 2)
      stage_.layer_tasks.*which = model_layers[1].plus(-1, model_layers[0]);
  }

  void price_tasks() {
    using program::TaskKind;
    const bool split = task_index(TaskKind::BackwardInput, 0).has_value();
    const TaskKind last = split ? TaskKind::BackwardInput : TaskKind::BackwardFull;
    price_task(TaskKind::Forward, 0, &TaskTimes::forward);
    price_task(TaskKind::BackwardFull, 0, &TaskTimes::backward_first);
    price_task(TaskKind::BackwardWeight, 0, &TaskTimes::weight_first);
    price_task(TaskKind::BackwardWeight, 1, &TaskTimes::weight);
    prelude_.reset();
    price_task(last, 1, split ? &TaskTimes::input : &TaskTimes::backward);
    stage_.prelude = prelude_.value_or(0);
    if (split)
      for (TaskTimes* times : {&stage_.tasks, &stage_.layer_tasks}) {
        times->backward_first = times->input.plus(1, times->weight_first);
        times->backward = times->input.plus(1, times->weight);
      }
    price_overlap();
  }

  void price_overlap() {
    const auto task = task_index(program::TaskKind::Overlapped, 0);
    if (!task || stage_.num_layers == 0) return;
    double together = 0;
    for (const auto& [layer, time] : play(*task)) together = std::max(together, time.seconds);
    const TaskTimes& alone = stage_.tasks;
    stage_.tasks.overlap_saves =
        std::max(0.0, alone.forward.seconds + alone.backward.seconds - together);
    stage_.layer_tasks.overlap_saves = stage_.tasks.overlap_saves / stage_.num_layers;
  }

  /// What only the first micro-batch does, of all layers and of the first one of the model's.
  void price_once() {
    std::optional<int> first;
    for (const OperationInstance& instance : program_.instances) {
      if (!instance.layer || !program::operation_of(program_, instance).once_per_step) continue;
      if (!first) first = instance.layer;
      const double seconds = price_of(instance).seconds;
      stage_.sums.once_seconds += seconds;
      if (instance.layer == *first) stage_.layer_sums.once_seconds += seconds;
    }
  }

  // ------------------------------------------------------------ the end of the step

  /// Seconds per element of each flat range, summed over the parameters of one layer.
  double share_of_layer(const StepOp& step, double seconds) const {
    double elements = 0;
    for (const auto& layer : program_.layers) {
      if (!layer.layer) continue;
      for (const int index : layer.parameters) {
        const program::Parameter& parameter = program_.parameters[at(index)];
        if (parameter.offset >= step.range.begin && parameter.offset < step.range.end)
          elements += static_cast<double>(parameter.elements());
      }
      break;
    }
    return seconds * elements / static_cast<double>(step.range.size());
  }

  void price_step() {
    for (const OperationInstance& instance : program_.instances) {
      if (instance.task || instance.layer) continue;
      const auto* step = std::get_if<StepOp>(&program::operation_of(program_, instance).work);
      if (step == nullptr) continue;
      const double seconds = price_of(instance).seconds;
      if (step->work == StepWork::SquaredNorm) {
        stage_.sums.norm_seconds += seconds;
        stage_.layer_sums.norm_seconds += share_of_layer(*step, seconds);
      } else if (step->work == StepWork::LoadBatch) {
        stage_.load_seconds += seconds;
      } else if (step->work == StepWork::MaskLoss) {
        stage_.sums.norm_seconds += seconds;
      } else {
        stage_.sums.update_seconds += seconds;
        stage_.sums.update_launches += 1;
        if (step->work != StepWork::OptimizerUpdate) continue;
        stage_.layer_sums.update_seconds += share_of_layer(*step, seconds);
        stage_.layer_sums.update_launches += share_of_layer(*step, 1);
      }
    }
  }

  // ------------------------------------------------------------ sizes

  /// Elements with the gap behind the parameter.
  std::int64_t padded_elements(std::size_t index) const {
    const std::int64_t end = index + 1 < program_.parameters.size()
                                 ? program_.parameters[index + 1].offset
                                 : program_.parameter_elements;
    return end - program_.parameters[index].offset;
  }

  void count_parameters() {
    const bool tied_over_stages =
        models::ending_reads_embedding(program_.plan.model) && program_.plan.parallel.pp > 1;
    std::vector<int> ready(program_.parameters.size(), static_cast<int>(program_.layers.size()));
    std::vector<int> users(program_.parameters.size(), 0);
    for (int layer = 0; layer < static_cast<int>(program_.layers.size()); ++layer)
      for (const int index : program_.layers[at(layer)].parameters) {
        ready[at(index)] = std::min(ready[at(index)], layer);
        ++users[at(index)];
      }
    stage_.sums.elements = static_cast<double>(program_.parameter_elements);
    stage_.parts.resize(program_.layers.size());
    stage_.frozen_parts.resize(program_.layers.size());
    for (std::size_t i = 0; i < program_.parameters.size(); ++i) {
      const program::Parameter& parameter = program_.parameters[i];
      const auto elements = static_cast<double>(padded_elements(i));
      const bool tied = tied_over_stages && parameter.name == "embedding.embed_tokens.weight";
      const std::size_t part = program_.layers.size() - 1 - at(ready[i]);
      if (parameter.frozen) {
        stage_.sums.frozen_elements += elements;
        stage_.sums.elements -= elements;
        FrozenElements& own = stage_.frozen_parts[part];
        if (tied)
          stage_.frozen_tied_elements += elements;
        else if (users[i] == 1)
          (parameter.expert ? own.experts : own.dense) += elements;
      } else if (!parameter.trained)
        stage_.sums.untrained_elements += elements;
      else if (parameter.tp_partial)
        stage_.sums.partial_elements += elements;
      else if (tied)
        stage_.tied_elements += elements;
      else
        stage_.parts[part].push_back(
            {.elements = padded_elements(i), .expert = parameter.expert, .shared = users[i] > 1});
    }
    count_layer();
  }

  void count_layer() {
    const int tp = program_.plan.parallel.tp;
    for (std::size_t layer = 0; layer < program_.layers.size(); ++layer) {
      const auto& placed = program_.layers[layer];
      if (!placed.layer) continue;
      stage_.first_layer_part = program_.layers.size() - 1 - layer;
      stage_.layer_kept_bytes = program_.blocks[at(placed.block)].kept_bytes;
      for (const int index : placed.parameters) {
        const auto elements = static_cast<double>(padded_elements(at(index)));
        const program::Parameter& parameter = program_.parameters[at(index)];
        (parameter.frozen ? stage_.layer_sums.frozen_elements : stage_.layer_sums.elements) +=
            elements;
        if (parameter.frozen) continue;
        if (!parameter.trained) stage_.layer_sums.untrained_elements += elements;
        if (parameter.tp_partial) stage_.layer_sums.partial_elements += elements;
        if (!parameter.shard_dim || parameter.expert) continue;
        for (const auto& held : program::copied_ranges(parameter, tp))
          if (held.copies > 1) stage_.layer_copied_parts.push_back(held.range.size());
      }
      return;
    }
  }

  void count_memory() {
    const auto region = [&](program::Region which) -> const program::RegionPlan& {
      return program_.memory.regions[static_cast<std::size_t>(which)];
    };
    for (const auto& layer : program_.layers)
      for (std::size_t keep = 0; keep < program::kNumKeeps; ++keep)
        stage_.kept_bytes[keep] += program_.blocks[at(layer.block)].kept_bytes[keep];
    stage_.sums.quantized_bytes =
        static_cast<double>(region(program::Region::QuantizedWeights).stride_bytes);
    for (const auto& layer : program_.layers)
      if (layer.layer) {
        stage_.layer_sums.quantized_bytes =
            static_cast<double>(program_.blocks[at(layer.block)].quantized_bytes);
        break;
      }
    stage_.slots.transient = static_cast<double>(region(program::Region::Transient).stride_bytes);
    stage_.slots.boundary = static_cast<double>(region(program::Region::Boundary).stride_bytes);
    stage_.slots.workspace = static_cast<double>(program_.memory.workspace_bytes);
    stage_.slots.scalar = static_cast<double>(region(program::Region::Scalars).bytes());
  }

  const Program& program_;
  const OperationForms::Numbers& forms_;
  const BlockPricing& pricing_;
  const Cluster& cluster_;
  StagePrices stage_;
  /// Instances [begin, end) among which a task's are.
  struct Instances {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  std::vector<Instances> of_task_;
  std::string signature_;          // of the operation that was priced last
  std::optional<double> prelude_;  // of the backward that was played last
};

}  // namespace

double seconds_on_busy_host(const Price& price, const Cluster& cluster) {
  if (price.memory_bytes_per_s <= 0 || cluster.host_memory_gb_per_s <= 0) return price.seconds;
  const int active = std::min(cluster.devices_per_node, cluster.cores_per_host);
  const double demand = price.memory_bytes_per_s * active;
  return price.seconds * std::max(1.0, demand / (cluster.host_memory_gb_per_s * kGigabyte));
}

StagePrices price_stage(const Program& program, const OperationForms::Numbers& forms,
                        const BlockPricing& pricing) {
  return StagePricer(program, forms, pricing).run();
}

}  // namespace meshplan::sim
