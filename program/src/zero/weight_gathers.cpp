// With ZeRO a rank updates the weights that it owns. The others' are gathered when the next step
// begins, each bucket while the layers before it run: the gathers at the end of a step, rotated
// into the loop body's beginning, where they hide behind the forward pass.
#include "zero/weight_gathers.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/index.hpp"
#include "program/zero/zero.hpp"
#include "splice.hpp"
#include "step_operations.hpp"
#include "zero/weight_fetch.hpp"

namespace meshplan::program {
namespace {

struct Gather {
  int bucket = 0;
  int needed_at = 0;  // instance
};

/// Buckets whose weights every rank holds and only their owners update, or which lie on the host,
/// in the order in which they are needed.
std::vector<Gather> gathers_of(const Program& program) {
  std::vector<int> first_use(program.layers.size(), static_cast<int>(program.instances.size()));
  for (int i = static_cast<int>(program.instances.size()) - 1; i >= 0; --i)
    if (const auto& layer = program.instances[at(i)].layer) first_use[at(*layer)] = i;
  std::vector<Gather> gathers;
  for (int b = 0; b < static_cast<int>(program.buckets.size()); ++b) {
    const Bucket& bucket = program.buckets[at(b)];
    const bool here = bucket.shards == 1 && !program.plan.offload_parameters;
    if (here || holds_owned_part(program.plan, Region::Weights, bucket)) continue;
    Gather gather{.bucket = b, .needed_at = static_cast<int>(program.instances.size())};
    for (std::size_t layer = 0; layer < program.layers.size(); ++layer)
      for (const int index : program.layers[layer].parameters) {
        const std::int64_t offset = program.parameters[at(index)].offset;
        if (offset >= bucket.range.begin && offset < bucket.range.end)
          gather.needed_at = std::min(gather.needed_at, first_use[layer]);
      }
    gathers.push_back(gather);
  }
  std::ranges::stable_sort(gathers, {}, &Gather::needed_at);
  return gathers;
}

OperationInstance instance_of(Program& program, Operation operation) {
  OperationInstance instance;
  instance.operation = {.index = static_cast<int>(program.step_operations.size())};
  instance.id = instance_id(std::nullopt, std::nullopt, operation.name);
  program.step_operations.push_back(std::move(operation));
  return instance;
}

Operation gather(const Program& program, int index) {
  const Bucket& bucket = program.buckets[at(index)];
  return {.name = fmt::format("weights[{}:{}].all_gather", bucket.range.begin, bucket.range.end),
          .phase = Phase::Forward,
          .lane = Lane::Dp,
          .work = FlatCollectiveOp{
              .collective = {.collective = Collective::AllGather,
                             .group = bucket.shard_group,
                             .dtype = program.plan.workload.precision,
                             .elements = {.count = bucket.owned_elements()}},
              .region = program.plan.offload_parameters ? Region::ResidentWeights : Region::Weights,
              .range = bucket.range,
              .bucket = index}};
}

}  // namespace

void insert_weight_gathers(Program& program) {
  if (program.plan.zero_stage == 0) return;
  const std::vector<Gather> gathers = gathers_of(program);
  // One ahead: a gather is issued when the bucket before it is needed, the first one after the
  // batch.
  std::vector<Addition> additions;
  int position = 1;
  for (const Gather& needed : gathers) {
    if (position >= static_cast<int>(program.instances.size())) break;
    const Bucket& bucket = program.buckets[at(needed.bucket)];
    if (program.plan.offload_parameters)
      additions.emplace_back(
          position, instance_of(program, fetch_weights(bucket, needed.bucket, Phase::Forward)));
    if (bucket.shards > 1)
      additions.emplace_back(position, instance_of(program, gather(program, needed.bucket)));
    position = std::max(1, needed.needed_at);
  }
  splice(program.instances, std::move(additions));
}

}  // namespace meshplan::program
