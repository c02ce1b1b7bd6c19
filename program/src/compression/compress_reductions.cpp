#include "compression/compress_reductions.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>

#include "core/index.hpp"
#include "program/compression/compression.hpp"
#include "step_operations.hpp"

namespace meshplan::program {
namespace {

class CompressedReductions {
 public:
  explicit CompressedReductions(Program& program) : program_(program) {}

  void run() {
    std::vector<OperationInstance> instances = std::move(program_.instances);
    program_.instances.clear();
    const auto last =
        std::ranges::find_if(instances.rbegin(), instances.rend(),
                             [&](const auto& i) { return reduced_bucket(i).has_value(); });
    const auto end = last.base() - instances.begin();  // behind the last reduction
    for (std::ptrdiff_t i = 0; i < std::ssize(instances); ++i) {
      if (i == end)
        while (is_pending_at_end()) advance();
      OperationInstance& instance = instances[static_cast<std::size_t>(i)];
      if (const auto bucket = reduced_bucket(instance))
        reduce(*bucket, instance);
      else if (const auto added = added_bucket(instance))
        sum_unit(*added);
      else
        program_.instances.push_back(instance);
    }
    while (is_pending_at_end()) advance();
    if (keeps_settled_errors(program_.plan)) settle();
  }

 private:
  // A bucket whose sum is not in its place yet.
  struct Pending {
    int bucket = 0;
    int slot = 0;
    bool summed = false;  // the part that this rank sums
    bool of_unit = false;
    OperationInstance place = {};  // task, micro-batch and slots
  };

  const Bucket& bucket_of(const Pending& pending) const {
    return program_.buckets[at(pending.bucket)];
  }

  /// The bucket that an instance sums over all ranks with equal parameters; with hybrid sharding,
  /// of which it sums what the rank owns.
  std::optional<int> reduced_bucket(const OperationInstance& instance) const {
    const auto* flat = std::get_if<FlatCollectiveOp>(&operation_of(program_, instance).work);
    if (flat == nullptr || !flat->bucket) return std::nullopt;
    if (flat->region != Region::Gradients && flat->region != Region::UnreducedBuckets)
      return std::nullopt;
    if (!is_compressed(program_.plan, program_.buckets[at(*flat->bucket)]) ||
        flat->collective.group != compressed_layout(program_, *flat->bucket).group)
      return std::nullopt;
    return flat->bucket;
  }

  /// The bucket whose reduced micro-batch an instance adds to the owned gradients: sums of what
  /// was compressed are added there at once.
  std::optional<int> added_bucket(const OperationInstance& instance) const {
    const auto* step = std::get_if<StepOp>(&operation_of(program_, instance).work);
    if (step == nullptr || step->work != StepWork::AccumulateGradients) return std::nullopt;
    if (!compresses_units(program_.plan, program_.buckets[at(*step->bucket)])) return std::nullopt;
    return step->bucket;
  }

  bool is_pending_at_end() const {
    return std::ranges::any_of(pending_, [](const Pending& pending) { return !pending.of_unit; });
  }

  void reduce(int bucket, const OperationInstance& instance) {
    const bool of_unit = compresses_units(program_.plan, program_.buckets[at(bucket)]);
    if (!of_unit) advance();
    const int slot = begun_++ % kCompressedSlots;
    // Its exchange has had the time of another unit.
    if (of_unit)
      if (const auto before = std::ranges::find(pending_, slot, &Pending::slot);
          before != pending_.end())
        finish_unit(before);
    begin({.bucket = bucket, .slot = slot, .of_unit = of_unit, .place = instance});
  }

  void begin(const Pending& pending) {
    append_step(pending, ".compress", StepWork::CompressGradients);
    append_collective(pending, compressed_layout(program_, pending.bucket).by_parts
                                   ? Collective::AllToAll
                                   : Collective::AllGather);
    pending_.push_back(pending);
  }

  void sum_unit(int bucket) {
    const auto oldest = std::ranges::find(pending_, bucket, &Pending::bucket);
    if (oldest != pending_.end()) finish_unit(oldest);
  }

  void finish_unit(std::vector<Pending>::iterator pending) {
    append_step(*pending, ".sum", StepWork::SumCompressed);
    program_.instances.back().accumulate = !added_.insert(pending->bucket).second;
    pending_.erase(pending);
  }

  /// Every pending bucket of the step's end does what its last communication allows.
  void advance() {
    std::vector<Pending> unfinished;
    for (Pending& pending : pending_) {
      const CompressedLayout layout = compressed_layout(program_, pending.bucket);
      if (pending.of_unit) {
        unfinished.push_back(pending);
      } else if (!layout.by_parts || pending.summed) {
        append_step(pending, ".decompress", StepWork::DecompressGradients);
      } else {
        append_step(pending, ".sum", StepWork::SumCompressed);
        if (layout.scatters) continue;  // its owner needs no more
        append_step(pending, ".compress_sum", StepWork::CompressSum);
        append_collective(pending, Collective::AllGather);
        pending.summed = true;
        unfinished.push_back(pending);
      }
    }
    pending_ = std::move(unfinished);
  }

  std::string name_of(const Pending& pending) const {
    const FlatRange& range = bucket_of(pending).range;
    return fmt::format("gradients[{}:{}]", range.begin, range.end);
  }

  /// Work that several micro-batches share is one operation.
  void append(const Pending& pending, Operation operation) {
    OperationInstance instance{.task = pending.place.task,
                               .microbatch = pending.place.microbatch,
                               .chunk = pending.place.chunk,
                               .gradient_slot = pending.place.gradient_slot,
                               .compressed_slot = pending.slot};
    instance.id = instance_id(instance.task, std::nullopt, operation.name);
    const auto [known, fresh] =
        operations_.try_emplace(operation.name, static_cast<int>(program_.step_operations.size()));
    instance.operation = {.index = known->second};
    if (fresh) program_.step_operations.push_back(std::move(operation));
    program_.instances.push_back(instance);
  }

  void append_step(const Pending& pending, const std::string& suffix, StepWork work) {
    append(pending, {.name = name_of(pending) + suffix,
                     .phase = Phase::Reduce,
                     .lane = Lane::Compute,
                     .work = StepOp{.work = work,
                                    .range = bucket_of(pending).range,
                                    .bucket = pending.bucket,
                                    .expert = bucket_of(pending).expert()}});
  }

  void append_collective(const Pending& pending, Collective collective) {
    const CompressedLayout layout = compressed_layout(program_, pending.bucket);
    const bool gather = collective == Collective::AllGather;
    append(pending, {.name = name_of(pending) + (gather ? ".all_gather" : ".all_to_all"),
                     .phase = Phase::Reduce,
                     .lane = Lane::Dp,
                     .work = FlatCollectiveOp{
                         .collective = {.collective = collective,
                                        .group = layout.group,
                                        .dtype = DType::U8,
                                        .elements = {.count = gather ? layout.record_bytes
                                                                     : layout.sent_bytes()}},
                         .region = Region::CompressedGradients,
                         .range = {0, layout.sent_bytes()},
                         .bucket = pending.bucket}});
  }

  /// Whether the step counts is known when its norm is.
  void settle() {
    append_step_operation(program_, {.name = "compression_errors.settle",
                                     .phase = Phase::Optimizer,
                                     .lane = Lane::Compute,
                                     .work = StepOp{.work = StepWork::SettleErrors}});
  }

  Program& program_;
  int begun_ = 0;
  std::vector<Pending> pending_;           // oldest first
  std::set<int> added_;                    // buckets of units with a sum of this step
  std::map<std::string, int> operations_;  // of program.step_operations
};

}  // namespace

void compress_reductions(Program& program) {
  if (program.plan.compression.kind == CompressionKind::None) return;
  CompressedReductions(program).run();
}

RegionPlan compressed_region(const Program& program) {
  RegionPlan region{.slots = kCompressedSlots};
  for (int b = 0; b < static_cast<int>(program.buckets.size()); ++b)
    if (is_compressed(program.plan, program.buckets[at(b)]))
      region.stride_bytes =
          std::max(region.stride_bytes, compressed_layout(program, b).slot_bytes());
  return region;
}

}  // namespace meshplan::program
