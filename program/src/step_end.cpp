#include <fmt/format.h>

#include "sharded_layer.hpp"

namespace meshplan::program {
namespace {

FlatRange scalars(Scalar first, std::int64_t count) {
  const auto begin = static_cast<std::int64_t>(first);
  return {begin, begin + count};
}

void append_all_reduce(Program& program, std::string name, Lane lane, Group group, Region region,
                       FlatRange range) {
  if (range.size() == 0 || group_size(group, program.plan.parallel) == 1) return;
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

/// Adjacent parameters with the same key, merged into ranges.
template <class Key>
std::vector<std::pair<FlatRange, bool>> merged_ranges(const Program& program, Key key) {
  std::vector<std::pair<FlatRange, bool>> ranges;
  for (const Parameter& parameter : program.parameters) {
    const FlatRange range{parameter.offset, parameter.offset + parameter.elements()};
    const std::optional<bool> value = key(parameter);
    if (!value) continue;
    // Alignment gaps hold zeros in every region, so a run may span them.
    const bool adjacent = !ranges.empty() && ranges.back().second == *value &&
                          range.begin - ranges.back().first.end < kAlignmentElements;
    if (adjacent)
      ranges.back().first.end = range.end;
    else
      ranges.emplace_back(range, *value);
  }
  return ranges;
}

}  // namespace

void append_load(Program& program) {
  append_step(program, "load_batch", Phase::Forward, {.work = StepWork::LoadBatch});
}

void append_bucket(Program& program, FlatRange range) {
  append_all_reduce(program, fmt::format("gradients[{}:{}].all_reduce", range.begin, range.end),
                    Lane::Dp, Group::DpCp, Region::Gradients, range);
}

void append_step_end(Program& program, const ParameterOrder& order, Pass pass) {
  if (pass == Pass::Training) {
    append_all_reduce(program, "sequence_gradients.all_reduce", Lane::Tp, Group::Tp,
                      Region::Gradients, order.tp_partial);
    append_all_reduce(program, "tied_embedding.all_reduce", Lane::Dp, Group::Embedding,
                      Region::Gradients, order.tied);
    append_bucket(program, {order.early.end, program.parameter_elements});
    const auto norm_ranges = merged_ranges(program, [](const Parameter& parameter) {
      return parameter.tied_copy ? std::nullopt : std::optional(parameter.shard_dim < 0);
    });
    for (const auto& [range, replicated] : norm_ranges)
      append_step(program, fmt::format("squared_norm[{}:{}]", range.begin, range.end),
                  Phase::Optimizer,
                  {.work = StepWork::SquaredNorm,
                   .range = range,
                   .first_tp_rank_only = replicated && program.plan.parallel.tp > 1});
  }
  if (program.role.last_stage)
    append_all_reduce(program, "loss.all_reduce", Lane::Dp, Group::DpCp, Region::Scalars,
                      scalars(Scalar::LossSum, 1));
  append_step(program, "mask_loss", Phase::Reduce, {.work = StepWork::MaskLoss});
  append_all_reduce(program, "loss_and_norm.all_reduce", Lane::Tp, Group::TpPp, Region::Scalars,
                    scalars(Scalar::LossSum, 2));
  if (pass == Pass::ForwardOnly) return;
  append_step(program, "clip_coefficient", Phase::Optimizer, {.work = StepWork::ClipCoefficient});
  const auto update_ranges = merged_ranges(
      program, [](const Parameter& parameter) { return std::optional(parameter.weight_decay); });
  for (const auto& [range, decay] : update_ranges)
    append_step(program, fmt::format("optimizer[{}:{}]", range.begin, range.end), Phase::Optimizer,
                {.work = StepWork::OptimizerUpdate, .range = range, .weight_decay = decay});
}

}  // namespace meshplan::program
