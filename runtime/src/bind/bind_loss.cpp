#include <algorithm>

#include "bind/bound_operands.hpp"

namespace meshplan::runtime {

using program::ComputeKind;

std::function<void()> OperatorBinder::Body::bind_loss(const Operands& o) {
  const bool vocabulary = o.work.split == models::Split::Vocab;
  if (o.work.kind == ComputeKind::CrossEntropyCombine)
    return ready(
        kernels::CrossEntropyCombine{.tokens = o.in_shape(1)[0],
                                     .num_shards = vocabulary ? program_.plan.parallel.tp : 1,
                                     .stats = o.in<float>(0),
                                     .targets = o.in<const std::int32_t>(1),
                                     .loss = o.out<float>(0),
                                     .lse = o.out<float>(1)});
  // Every tp rank has the loss of all tokens; an indexer's is summed over these ranks, too.
  const program::Storage sum = o.value(o.operation.outputs.front()).storage;
  if (sum == program::Storage::IndexerLoss && place_.tp_rank > 0) return [] {};
  if (o.work.kind == ComputeKind::SumLoss)
    return ready(kernels::SumLoss{.tokens = o.in_shape(0)[0],
                                  .loss = o.in<float>(0),
                                  .sum = o.out<double>(0),
                                  .accumulate = true,
                                  .weight = o.work.attributes.scale});
  const auto softcap = static_cast<float>(o.work.attributes.softcap);
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t columns = o.in_shape(0)[1];
  const std::int64_t begin = vocabulary ? place_.tp_rank * columns : 0;
  const models::ModelSpec& model = program_.plan.model;
  const int outputs = model.num_classes > 0 ? model.num_classes : model.vocab_size;
  const std::int64_t valid = std::clamp<std::int64_t>(outputs - begin, 0, columns);
  if (o.work.kind == ComputeKind::CrossEntropyLocal)
    return ready(kernels::CrossEntropyLocal{.tokens = tokens,
                                            .columns = columns,
                                            .valid = valid,
                                            .vocab_begin = begin,
                                            .dtype = o.dtype(),
                                            .logits = o.in(0),
                                            .logits_stride = columns,
                                            .targets = o.in<const std::int32_t>(1),
                                            .softcap = softcap,
                                            .stats = o.out<float>(0)});
  return ready(
      kernels::CrossEntropyBackward{.tokens = tokens,
                                    .columns = columns,
                                    .valid = valid,
                                    .vocab_begin = begin,
                                    .dtype = o.dtype(),
                                    .logits = o.in(0),
                                    .dlogits = o.out(0),
                                    .logits_stride = columns,
                                    .targets = o.in<const std::int32_t>(1),
                                    .lse = o.in<float>(2),
                                    .softcap = softcap,
                                    .scale = gradient_scale_,
                                    .weight = static_cast<float>(o.work.attributes.scale)});
}

}  // namespace meshplan::runtime
