#include "compress_reductions.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "program/compression.hpp"
#include "sharded_layer.hpp"

namespace meshplan::program {
namespace {

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

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
        while (!pending_.empty()) advance();
      OperationInstance& instance = instances[static_cast<std::size_t>(i)];
      const auto bucket = reduced_bucket(instance);
      if (!bucket) {
        program_.instances.push_back(std::move(instance));
        continue;
      }
      advance();
      begin(*bucket);
    }
    while (!pending_.empty()) advance();
  }

 private:
  // A bucket whose sum is not in its place yet.
  struct Pending {
    int bucket = 0;
    int slot = 0;
    bool summed = false;  // int8: the part that this rank sums
  };

  /// The bucket that an instance sums over all ranks with equal parameters.
  std::optional<int> reduced_bucket(const OperationInstance& instance) const {
    const auto* flat = std::get_if<FlatCollectiveOp>(&operation_of(program_, instance).work);
    if (flat == nullptr || flat->region != Region::Gradients || !flat->bucket) return std::nullopt;
    const Bucket& bucket = program_.buckets[at(*flat->bucket)];
    if (!is_compressed(program_.plan, bucket) ||
        flat->collective.group != compressed_layout(program_.plan, bucket).group)
      return std::nullopt;
    return flat->bucket;
  }

  bool int8() const { return program_.plan.compression.kind == CompressionKind::Int8; }

  void begin(int bucket) {
    const Pending pending{.bucket = bucket, .slot = begun_++ % kCompressedSlots};
    append_step(pending, ".compress", StepWork::CompressGradients);
    if (int8())
      append_collective(pending, Collective::AllToAll);
    else
      append_collective(pending, Collective::AllGather);
    pending_.push_back(pending);
  }

  /// Every pending bucket does what its last communication allows.
  void advance() {
    std::vector<Pending> unfinished;
    for (Pending& pending : pending_) {
      if (!int8() || pending.summed) {
        append_step(pending, ".decompress", StepWork::DecompressGradients);
        continue;
      }
      append_step(pending, ".sum", StepWork::SumCompressed);
      if (layout_of(pending).scatters) continue;  // its owner needs no more
      append_step(pending, ".compress_sum", StepWork::CompressSum);
      append_collective(pending, Collective::AllGather);
      pending.summed = true;
      unfinished.push_back(pending);
    }
    pending_ = std::move(unfinished);
  }

  const Bucket& bucket_of(const Pending& pending) const {
    return program_.buckets[at(pending.bucket)];
  }
  CompressedLayout layout_of(const Pending& pending) const {
    return compressed_layout(program_.plan, bucket_of(pending));
  }
  std::string name_of(const Pending& pending) const {
    const FlatRange& range = bucket_of(pending).range;
    return fmt::format("gradients[{}:{}]", range.begin, range.end);
  }

  void append(const Pending& pending, Operation operation) {
    append_step_operation(program_, std::move(operation));
    program_.instances.back().gradient_slot = pending.slot;
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
    const CompressedLayout layout = layout_of(pending);
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

  Program& program_;
  int begun_ = 0;
  std::vector<Pending> pending_;  // oldest first
};

}  // namespace

void compress_reductions(Program& program) {
  if (program.plan.compression.kind == CompressionKind::None) return;
  CompressedReductions(program).run();
}

RegionPlan compressed_region(const Program& program) {
  RegionPlan region{.slots = kCompressedSlots};
  for (const Bucket& bucket : program.buckets)
    if (is_compressed(program.plan, bucket))
      region.stride_bytes =
          std::max(region.stride_bytes, compressed_layout(program.plan, bucket).slot_bytes());
  return region;
}

}  // namespace meshplan::program
