#include <algorithm>
#include <fmt/format.h>

#include "program/shard_layout.hpp"
#include "sharded_layer.hpp"

namespace meshplan::program {
namespace {

FlatRange scalars(Scalar first, std::int64_t count) {
  const auto begin = static_cast<std::int64_t>(first);
  return {begin, begin + count};
}

void append_all_reduce(Program& program, std::string name, Lane lane, Group group, Region region,
                       FlatRange range) {
  if (range.size() == 0 || group_size(group, program.plan.parallel, kv_copies(program.plan)) == 1)
    return;
  const DType dtype = region == Region::Scalars ? DType::F64 : DType::F32;
  append_step_operation(
      program, {.name = std::move(name),
                .phase = Phase::Reduce,
                .lane = lane,
                .work = FlatCollectiveOp{.collective = {.collective = Collective::AllReduce,
                                                        .group = group,
                                                        .dtype = dtype,
                                                        .elements = {.count = range.size()}},
                                         .region = region,
                                         .range = range}});
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
  void add(FlatRange range, Key key) {
    // Alignment gaps hold zeros in every region, so a run may span them.
    const bool adjacent = !ranges_.empty() && ranges_.back().second == key &&
                          range.begin - ranges_.back().first.end < kAlignmentElements;
    if (adjacent)
      ranges_.back().first.end = range.end;
    else
      ranges_.emplace_back(range, key);
  }
  std::vector<std::pair<FlatRange, Key>> take() { return std::move(ranges_); }

 private:
  std::vector<std::pair<FlatRange, Key>> ranges_;
};

/// Runs of gradients by how many adjacent tp ranks hold the same; without tied copies, whose
/// gradients the first stage counts.
std::vector<std::pair<FlatRange, int>> ranges_by_copies(const Program& program) {
  MergedRanges<int> ranges;
  for (const Parameter& parameter : program.parameters) {
    if (parameter.tied_copy || parameter.expert) continue;
    for (const HeldRange& held : held_ranges(parameter, program.plan.parallel.tp))
      ranges.add({parameter.offset + held.range.begin, parameter.offset + held.range.end},
                 held.copies);
  }
  return ranges.take();
}

std::vector<std::pair<FlatRange, bool>> ranges_by_decay(const Program& program) {
  MergedRanges<bool> ranges;
  for (const Parameter& parameter : program.parameters)
    ranges.add({parameter.offset, parameter.offset + parameter.elements()}, parameter.weight_decay);
  return ranges.take();
}

/// Sums over their holders the gradients of key/value heads that several ranks hold.
void append_copied_heads(Program& program, FlatRange range) {
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    if (parameter.expert || parameter.shard_dim < 0 || parameter.offset < range.begin ||
        parameter.offset >= range.end)
      continue;
    for (const HeldRange& held : held_ranges(parameter, program.plan.parallel.tp))
      if (held.copies > 1)
        append_all_reduce(program, parameter.name + ".copied_heads.all_reduce", Lane::Tp,
                          Group::KvCopies, Region::Gradients,
                          {parameter.offset + held.range.begin, parameter.offset + held.range.end});
  }
}

}  // namespace

void append_load(Program& program) {
  append_step(program, "load_batch", Phase::Forward, {.work = StepWork::LoadBatch});
}

void append_bucket(Program& program, FlatRange range, Group group) {
  if (group == Group::DpCp) append_copied_heads(program, range);
  append_all_reduce(program, fmt::format("gradients[{}:{}].all_reduce", range.begin, range.end),
                    Lane::Dp, group, Region::Gradients, range);
}

void append_step_end(Program& program, const ParameterOrder& order, Pass pass) {
  // A replica's ranks do not hold all experts between them, so the norm is summed over all ranks.
  const bool moe = program.plan.model.moe.has_value();
  if (pass == Pass::Training) {
    append_all_reduce(program, "sequence_gradients.all_reduce", Lane::Tp, Group::Tp,
                      Region::Gradients, order.tp_partial);
    append_all_reduce(program, "tied_embedding.all_reduce", Lane::Dp, Group::Embedding,
                      Region::Gradients, order.tied);
    append_bucket(program,
                  {std::max(order.early.end, order.experts.end), program.parameter_elements});
    for (const auto& [range, copies] : ranges_by_copies(program))
      append_step(program, fmt::format("squared_norm[{}:{}]", range.begin, range.end),
                  Phase::Optimizer,
                  {.work = StepWork::SquaredNorm,
                   .range = range,
                   .tp_copies = copies,
                   .first_replica_only = moe});
    if (order.experts.size() > 0)
      append_step(program,
                  fmt::format("squared_norm[{}:{}]", order.experts.begin, order.experts.end),
                  Phase::Optimizer,
                  {.work = StepWork::SquaredNorm,
                   .range = order.experts,
                   .first_replica_only = true,
                   .expert = true});
  }
  if (program.role.last_stage)
    append_all_reduce(program, "loss.all_reduce", Lane::Dp, Group::DpCp, Region::Scalars,
                      scalars(Scalar::LossSum, 1));
  append_step(program, "mask_loss", Phase::Reduce,
              {.work = StepWork::MaskLoss, .first_replica_only = moe});
  append_all_reduce(program, "loss_and_norm.all_reduce", Lane::Tp, moe ? Group::World : Group::TpPp,
                    Region::Scalars, scalars(Scalar::LossSum, 2));
  if (pass == Pass::ForwardOnly) return;
  append_step(program, "clip_coefficient", Phase::Optimizer, {.work = StepWork::ClipCoefficient});
  for (const auto& [range, decay] : ranges_by_decay(program))
    append_step(program, fmt::format("optimizer[{}:{}]", range.begin, range.end), Phase::Optimizer,
                {.work = StepWork::OptimizerUpdate, .range = range, .weight_decay = decay});
}

}  // namespace meshplan::program
