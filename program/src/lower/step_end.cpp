#include "lower/step_end.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <functional>

#include "copied_heads.hpp"
#include "core/index.hpp"
#include "program/compression/compression.hpp"
#include "program/memory/address.hpp"
#include "program/memory/offload.hpp"
#include "program/shard_layout.hpp"
#include "program/zero/zero.hpp"
#include "step_operations.hpp"

namespace meshplan::program {
namespace {

void append_all_reduce(Program& program, std::string name, Lane lane, Group group, Region region,
                       FlatRange range, std::optional<int> bucket = std::nullopt) {
  if (range.size() == 0 || group_size(group, program.plan) == 1) return;
  append_step_operation(program,
                        flat_all_reduce(std::move(name), lane, group, region, range, bucket));
}

void append_step(Program& program, std::string name, Phase phase, StepOp work) {
  const Lane lane = work.work == StepWork::LoadBatch ? Lane::Host : Lane::Compute;
  append_step_operation(program,
                        {.name = std::move(name), .phase = phase, .lane = lane, .work = work});
}

/// Collects ranges in ascending order; adjacent ones with the same key become one.
template <class Key>
class MergedRanges {
 public:
  explicit MergedRanges(const Plan& plan) : alignment_(parameter_alignment(plan)) {}
  void add(FlatRange range, Key key) {
    // Alignment gaps hold zeros in every region, so a run may span them.
    const bool adjacent = !ranges_.empty() && ranges_.back().second == key &&
                          range.begin - ranges_.back().first.end < alignment_;
    if (adjacent)
      ranges_.back().first.end = range.end;
    else
      ranges_.emplace_back(range, key);
  }
  std::vector<std::pair<FlatRange, Key>> take() { return std::move(ranges_); }

 private:
  std::int64_t alignment_;  // elements
  std::vector<std::pair<FlatRange, Key>> ranges_;
};

/// Which bucket a run lies in; without ZeRO runs may span buckets.
std::optional<int> dividing_bucket(const Program& program, std::int64_t offset) {
  if (program.plan.zero_stage == 0) return std::nullopt;
  const auto after = std::ranges::upper_bound(program.buckets, offset, {},
                                              [](const Bucket& b) { return b.range.begin; });
  return static_cast<int>(after - program.buckets.begin()) - 1;
}

/// What work on a run of the parameters depends on.
template <class Kind>
struct RunKey {
  Kind kind{};
  std::optional<int> bucket;
  bool operator==(const RunKey&) const = default;
};
template <class Kind>
using Runs = std::vector<std::pair<FlatRange, RunKey<Kind>>>;

/// Runs of gradients by how many adjacent tp ranks (of experts': etp ranks) hold the same; without
/// tied copies, whose gradients the first stage counts.
Runs<int> ranges_by_copies(const Program& program, bool expert) {
  MergedRanges<RunKey<int>> ranges(program.plan);
  const ParallelConfig& parallel = program.plan.parallel;
  for (const Parameter& parameter : program.parameters) {
    if (parameter.tied_copy || parameter.expert != expert || !parameter.trained) continue;
    const auto bucket = dividing_bucket(program, parameter.offset);
    for (const CopiedRange& held : copied_ranges(parameter, expert ? parallel.etp : parallel.tp))
      ranges.add({parameter.offset + held.range.begin, parameter.offset + held.range.end},
                 {held.copies, bucket});
  }
  return ranges.take();
}

Runs<bool> ranges_by_decay(const Program& program) {
  MergedRanges<RunKey<bool>> ranges(program.plan);
  for (const Parameter& parameter : program.parameters)
    if (parameter.trained)
      ranges.add({parameter.offset, parameter.offset + parameter.elements()},
                 {parameter.weight_decay, dividing_bucket(program, parameter.offset)});
  return ranges.take();
}

Operation update_operation(std::string name, StepOp work) {
  return {.name = std::move(name), .phase = Phase::Optimizer, .lane = Lane::Compute, .work = work};
}

/// What moves parameters: the optimizer by runs, then the routers' correction biases, each by the
/// load of its layer. Every rank knows all loads.
std::vector<Operation> updates_of(const Program& program) {
  std::vector<Operation> updates;
  for (const auto& [run, key] : ranges_by_decay(program)) {
    const bool expert = key.bucket && program.buckets[at(*key.bucket)].expert();
    for (const FlatRange& range :
         program.plan.offload_optimizer ? pieces_of(program, run) : std::vector<FlatRange>{run})
      updates.push_back(update_operation(fmt::format("optimizer[{}:{}]", range.begin, range.end),
                                         {.work = StepWork::OptimizerUpdate,
                                          .range = range,
                                          .bucket = key.bucket,
                                          .weight_decay = key.kind,
                                          .expert = expert}));
  }
  for (const LayerInstance& layer : program.layers)
    for (const int index : layer.parameters) {
      const Parameter& parameter = program.parameters[at(index)];
      if (parameter.trained || parameter.frozen) continue;
      updates.push_back(update_operation(
          parameter.name + ".balance",
          {.work = StepWork::BalanceExperts,
           .range = {parameter.offset, parameter.offset + parameter.elements()},
           .bucket = parameter.bucket,
           .load_row = expert_load_row(program.plan,
                                       layer.layer.value_or(program.plan.model.num_layers))}));
    }
  if (program.plan.offload_optimizer)  // slots alternate: large pieces must not share one
    std::ranges::stable_sort(updates, std::ranges::greater{}, [](const Operation& update) {
      return std::get<StepOp>(update.work).range.size();
    });
  return updates;
}

}  // namespace

void append_load(Program& program) {
  append_step(program, "load_batch", Phase::Forward, {.work = StepWork::LoadBatch});
}

namespace {

/// Hybrid: of the part that a rank owns.
void append_sum_over_replicas(Program& program, int index) {
  const Bucket& bucket = program.buckets[at(index)];
  if (!bucket.replicas) return;
  Operation sum = flat_all_reduce(
      fmt::format("gradients[{}:{}].all_reduce", bucket.range.begin, bucket.range.end), Lane::Dp,
      *bucket.replicas, Region::Gradients, bucket.range, index);
  auto& flat = std::get<FlatCollectiveOp>(sum.work);
  flat.owned = true;
  flat.collective.elements = {.count = bucket.owned_elements()};
  append_step_operation(program, std::move(sum));
}

}  // namespace

void append_reduction(Program& program, int index) {
  const Bucket& bucket = program.buckets[at(index)];
  const FlatRange range = bucket.range;
  for (Operation& sum : copied_head_sums(program, index, Region::Gradients))
    append_step_operation(program, std::move(sum));
  const std::string name = fmt::format("gradients[{}:{}]", range.begin, range.end);
  if (bucket.shards == 1)
    return append_all_reduce(program, name + ".all_reduce", Lane::Dp, bucket.group,
                             Region::Gradients, range, index);
  append_step_operation(
      program, {.name = name + ".reduce_scatter",
                .phase = Phase::Reduce,
                .lane = Lane::Dp,
                .work = FlatCollectiveOp{.collective = {.collective = Collective::ReduceScatter,
                                                        .group = bucket.shard_group,
                                                        .dtype = DType::F32,
                                                        .elements = {.count = range.size()}},
                                         .region = Region::Gradients,
                                         .range = range,
                                         .bucket = index}});
  append_sum_over_replicas(program, index);
}

namespace {

void append_squared_norms(Program& program, bool over_world) {
  for (const bool expert : {false, true})
    for (const auto& [range, key] : ranges_by_copies(program, expert))
      append_step(program, fmt::format("squared_norm[{}:{}]", range.begin, range.end),
                  Phase::Optimizer,
                  {.work = StepWork::SquaredNorm,
                   .range = range,
                   .bucket = key.bucket,
                   .tp_copies = key.kind,
                   .first_replica_only = over_world,
                   .expert = expert});
}

}  // namespace

void append_step_end(Program& program, const ParameterOrder& order, Pass pass) {
  // A replica's ranks do not hold all experts between them, nor, with ZeRO, own all parameters: so
  // the norm is summed over all ranks. So are losses beside those of the tokens.
  const bool sparse = program.plan.model.sparse_attention.has_value();
  const bool over_world =
      program.plan.model.moe.has_value() || sparse || program.plan.zero_stage > 0;
  const std::int64_t behind = sparse ? 4 : program.plan.model.moe ? 3 : 1;  // the norm, and these
  const bool offloaded = program.plan.offload_optimizer;
  std::vector<Operation> updates;
  if (pass == Pass::Training) {
    updates = updates_of(program);
    const auto trained = std::ranges::count(program.buckets, true, &Bucket::trained);
    const int late = static_cast<int>(trained) - 1;  // if there is one; what is not trained follows
    append_all_reduce(program, "sequence_gradients.all_reduce", Lane::Tp, Group::Tp,
                      Region::Gradients, order.tp_partial, late);
    append_all_reduce(program, "tied_embedding.all_reduce", Lane::Dp, Group::Embedding,
                      Region::Gradients, order.tied, late);
    for (int bucket = 0; bucket <= late; ++bucket) {
      if (program.buckets[at(bucket)].late)
        append_reduction(program, bucket);
      else if (program.buckets[at(bucket)].unit)
        append_sum_over_replicas(program, bucket);
    }
    if (offloaded) append_first_fetches(program, updates);
    append_squared_norms(program, over_world);
  }
  if (program.role.last_stage)
    append_all_reduce(program, "loss.all_reduce", Lane::Dp, Group::DpCp, Region::Scalars,
                      loss_scalars(program.plan));
  append_step(program, "mask_loss", Phase::Reduce,
              {.work = StepWork::MaskLoss, .first_replica_only = over_world});
  append_all_reduce(program, "loss_and_norm.all_reduce", Lane::Tp,
                    over_world ? Group::World : Group::TpPp, Region::Scalars,
                    {loss_scalars(program.plan).begin, loss_scalars(program.plan).end + behind});
  // Each rank counted its own tokens and the layers of its own stage.
  append_all_reduce(program, "expert_load.all_reduce", Lane::Tp, Group::World, Region::ExpertLoad,
                    {0, expert_load_elements(program.plan)});
  if (pass == Pass::ForwardOnly) return;
  append_step(program, "clip_coefficient", Phase::Optimizer, {.work = StepWork::ClipCoefficient});
  if (offloaded) return append_offloaded_updates(program, std::move(updates));
  for (Operation& update : updates) append_step_operation(program, std::move(update));
}

}  // namespace meshplan::program
