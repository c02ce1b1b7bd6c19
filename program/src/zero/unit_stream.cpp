// ZeRO-2 and 3 (Rajbhandari et al. 2020, sections 5.2 and 5.3; units as in Zhao et al. 2023,
// section 3.2): gradients of a unit of layers are reduced micro-batch by micro-batch and each rank
// adds up its part; with stage 3 the unit's weights, frozen ones too, are gathered one unit ahead
// of its layers, forward and backward.
#include "zero/unit_stream.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "copied_heads.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "program/zero/zero.hpp"
#include "splice.hpp"
#include "step_operations.hpp"
#include "zero/weight_fetch.hpp"

namespace meshplan::program {
namespace {

// The operations of a task on a unit's layers, in issue order.
struct UnitVisit {
  int unit = 0;
  int task = 0;
  int microbatch = 0;
  int chunk = 0;
  int begin = 0;  // instances; what lies between that is not the unit's are messages
  int end = 0;
  bool reads_weights = false;
  bool writes_gradients = false;
  int weight_slot = 0;
  int gradient_slot = 0;
};

class UnitStream {
 public:
  UnitStream(Program& program, std::vector<OperationInstance> instances)
      : program_(program),
        instances_(std::move(instances)),
        accumulated_(program.units.size(), false) {}

  std::vector<OperationInstance> run() {
    find_visits();
    if (program_.plan.zero_stage == 3) gather_weights();
    reduce_gradients();
    set_slots();
    splice(instances_, std::move(additions_));
    return std::move(instances_);
  }

 private:
  int unit_of(int layer) const {
    for (std::size_t i = 0; i < program_.units.size(); ++i)
      if (layer >= program_.units[i].first_layer && layer < program_.units[i].end_layer)
        return static_cast<int>(i);
    throw InvariantError("a layer outside of all units");
  }

  /// Parameters of streamed buckets among these operands.
  std::vector<int> streamed(const OperationInstance& instance, const std::vector<ValueId>& operands,
                            Storage storage) const {
    const LayerInstance& layer = layer_of(program_, instance);
    const Block& block = program_.blocks[at(layer.block)];
    std::vector<int> found;
    for (ValueId id : operands) {
      while (block.values[at(id)].alias) id = *block.values[at(id)].alias;
      const Value& value = block.values[at(id)];
      if (value.storage != storage) continue;
      const int parameter = layer.parameters[at(value.index)];
      if (program_.buckets[at(program_.parameters[at(parameter)].bucket)].unit)
        found.push_back(parameter);
    }
    return found;
  }

  void find_visits() {
    for (int i = 0; i < static_cast<int>(instances_.size()); ++i) {
      const OperationInstance& instance = instances_[at(i)];
      if (!instance.layer) continue;
      const int unit = unit_of(*instance.layer);
      if (visits_.empty() || visits_.back().unit != unit || visits_.back().task != instance.task)
        visits_.push_back({.unit = unit,
                           .task = *instance.task,
                           .microbatch = *instance.microbatch,
                           .chunk = instance.chunk,
                           .begin = i});
      UnitVisit& visit = visits_.back();
      visit.end = i + 1;
      const Operation& operation = operation_of(program_, instance);
      visit.reads_weights =
          visit.reads_weights || !streamed(instance, operation.inputs, Storage::Parameter).empty();
      visit.writes_gradients = visit.writes_gradients ||
                               !streamed(instance, operation.outputs, Storage::Gradient).empty();
    }
  }

  /// The next gather is issued when the unit before it begins: then the slot that it fills, of the
  /// unit before that, has been read.
  void gather_weights() {
    int gathers = 0, previous_begin = 0;
    const UnitVisit* previous = nullptr;
    for (UnitVisit& visit : visits_) {
      if (!visit.reads_weights) continue;
      if (previous != nullptr && previous->unit == visit.unit) {
        visit.weight_slot = previous->weight_slot;  // it is still there
        previous = &visit;
        continue;
      }
      visit.weight_slot = gathers++ % kUnitSlots;
      for (const int bucket : program_.units[at(visit.unit)].buckets) {
        if (program_.plan.offload_parameters)
          additions_.emplace_back(
              previous_begin, instance_of(visit, fetch_weights(program_.buckets[at(bucket)], bucket,
                                                               gather_phase(visit))));
        additions_.emplace_back(previous_begin, gather(visit, bucket));
      }
      previous = &visit;
      previous_begin = visit.begin;
    }
  }

  void reduce_gradients() {
    int reductions = 0;
    const UnitVisit* reduced = nullptr;
    for (UnitVisit& visit : visits_) {
      if (!visit.writes_gradients) continue;
      visit.gradient_slot = reductions++ % kUnitSlots;
      const std::set<int> written = written_in(visit);
      for (const int bucket : program_.units[at(visit.unit)].buckets) {
        if (!program_.buckets[at(bucket)].trained) continue;
        clear_unwritten(visit, bucket, written);
        reduce(visit, bucket);
      }
      if (reduced != nullptr) accumulate(*reduced, visit.end);
      reduced = &visit;
    }
    if (reduced != nullptr) accumulate(*reduced, reduced->end);
  }

  OperationInstance instance_of(const UnitVisit& visit, Operation operation) {
    const auto known = operations_.find(operation.name);
    OperationInstance instance{.task = visit.task,
                               .microbatch = visit.microbatch,
                               .chunk = visit.chunk,
                               .weight_slot = visit.weight_slot,
                               .gradient_slot = visit.gradient_slot};
    instance.id = instance_id(visit.task, std::nullopt, operation.name);
    if (known != operations_.end()) {
      instance.operation = {.index = known->second};
      return instance;
    }
    instance.operation = {.index = static_cast<int>(program_.step_operations.size())};
    operations_[operation.name] = instance.operation.index;
    program_.step_operations.push_back(std::move(operation));
    return instance;
  }

  Phase gather_phase(const UnitVisit& visit) const {
    return program_.tasks[at(visit.task)].kind == TaskKind::Forward ? Phase::Forward
                                                                    : Phase::InputGrad;
  }

  OperationInstance gather(const UnitVisit& visit, int index) {
    const Bucket& bucket = program_.buckets[at(index)];
    return instance_of(
        visit,
        {.name = fmt::format("weights[{}:{}].all_gather", bucket.range.begin, bucket.range.end),
         .phase = gather_phase(visit),
         .lane = Lane::Dp,
         .work = FlatCollectiveOp{.collective = {.collective = Collective::AllGather,
                                                 .group = bucket.shard_group,
                                                 .dtype = program_.plan.workload.precision,
                                                 .elements = {.count = bucket.owned_elements()}},
                                  .region = Region::GatheredWeights,
                                  .range = bucket.range,
                                  .bucket = index}});
  }

  void reduce(const UnitVisit& visit, int index) {
    for (Operation& sum : copied_head_sums(program_, index, Region::UnreducedBuckets))
      additions_.emplace_back(visit.end, instance_of(visit, std::move(sum)));
    const Bucket& bucket = program_.buckets[at(index)];
    additions_.emplace_back(
        visit.end,
        instance_of(visit, {.name = fmt::format("gradients[{}:{}].reduce_scatter",
                                                bucket.range.begin, bucket.range.end),
                            .phase = Phase::Reduce,
                            .lane = Lane::Dp,
                            .work = FlatCollectiveOp{
                                .collective = {.collective = Collective::ReduceScatter,
                                               .group = bucket.shard_group,
                                               .dtype = DType::F32,
                                               .elements = {.count = bucket.range.size()}},
                                .region = Region::UnreducedBuckets,
                                .range = bucket.range,
                                .bucket = index}}));
  }

  std::set<int> written_in(const UnitVisit& visit) const {
    std::set<int> written;
    for (int i = visit.begin; i < visit.end; ++i) {
      if (!instances_[at(i)].layer) continue;
      const Operation& operation = operation_of(program_, instances_[at(i)]);
      for (const int id : streamed(instances_[at(i)], operation.outputs, Storage::Gradient))
        written.insert(id);
    }
    return written;
  }

  /// Gaps that align parameters, and parameters without a gradient: another unit, whose layout
  /// differs, has left its gradients there, which would count in the norm.
  void clear_unwritten(const UnitVisit& visit, int index, const std::set<int>& written) {
    const FlatRange range = program_.buckets[at(index)].range;
    std::int64_t end = range.begin;  // of what is known to be written or cleared
    const auto clear_up_to = [&](std::int64_t next) {
      if (next > end)
        additions_.emplace_back(
            visit.begin,
            instance_of(visit, {.name = fmt::format("gradients[{}:{}].clear", end, next),
                                .phase = Phase::Reduce,
                                .lane = Lane::Compute,
                                .work = StepOp{.work = StepWork::ClearGradients,
                                               .range = {end, next},
                                               .bucket = index}}));
    };
    std::vector<FlatRange> ranges;
    for (const int id : written) {
      const Parameter& parameter = program_.parameters[at(id)];
      if (parameter.bucket == index)
        ranges.push_back({parameter.offset, parameter.offset + parameter.elements()});
    }
    std::ranges::sort(ranges, {}, &FlatRange::begin);
    for (const FlatRange& parameter : ranges) {
      clear_up_to(parameter.begin);
      end = parameter.end;
    }
    clear_up_to(range.end);
  }

  void accumulate(const UnitVisit& visit, int position) {
    for (const int index : program_.units[at(visit.unit)].buckets) {
      if (!program_.buckets[at(index)].trained) continue;
      const bool expert = program_.buckets[at(index)].expert();
      const FlatRange range = program_.buckets[at(index)].range;
      OperationInstance instance = instance_of(
          visit, {.name = fmt::format("gradients[{}:{}].accumulate", range.begin, range.end),
                  .phase = Phase::Reduce,
                  .lane = Lane::Compute,
                  .work = StepOp{.work = StepWork::AccumulateGradients,
                                 .range = range,
                                 .bucket = index,
                                 .expert = expert}});
      instance.accumulate = accumulated_[at(visit.unit)];
      additions_.emplace_back(position, instance);
    }
    accumulated_[at(visit.unit)] = true;
  }

  void set_slots() {
    for (const UnitVisit& visit : visits_) {
      std::set<int> written;
      for (int i = visit.begin; i < visit.end; ++i) {
        OperationInstance& instance = instances_[at(i)];
        instance.weight_slot = visit.weight_slot;
        instance.gradient_slot = visit.gradient_slot;
        if (!instance.layer) continue;
        // Every micro-batch writes anew; only what is not streamed adds to earlier ones.
        for (const int parameter :
             streamed(instance, operation_of(program_, instance).outputs, Storage::Gradient))
          instance.accumulate = !written.insert(parameter).second;
      }
    }
  }

  Program& program_;
  std::vector<OperationInstance> instances_;
  std::vector<Addition> additions_;
  std::vector<UnitVisit> visits_;
  std::vector<bool> accumulated_;          // by unit
  std::map<std::string, int> operations_;  // of program.step_operations
};

}  // namespace

std::vector<OperationInstance> stream_units(Program& program,
                                            std::vector<OperationInstance> instances) {
  return UnitStream(program, std::move(instances)).run();
}

std::int64_t largest_of_units(const Program& program, std::int64_t Unit::*elements) {
  std::int64_t largest = 0;
  for (const Unit& unit : program.units) largest = std::max(largest, unit.*elements);
  return largest;
}

}  // namespace meshplan::program
