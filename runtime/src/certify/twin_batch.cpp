#include "certify/twin_batch.hpp"

#include "kernels/training/cross_entropy.hpp"
#include "program/context/context.hpp"
#include "runtime/data/data.hpp"

namespace meshplan::runtime {
namespace {

std::int32_t token(std::uint64_t seed, std::int64_t sequence, std::int64_t position,
                   int vocabulary) {
  const auto shift = static_cast<std::int64_t>(seed % 1009);
  return static_cast<std::int32_t>(
      (shift + sequence * (37 + 2 * shift) + position * position * 11 + position * 3) % vocabulary);
}

/// As many lengths as fit of a fixed row that sequences begin at different places of, one token at
/// least, with padding between and at the end.
program::PackedSequence documents_of(const program::Plan& plan, std::int64_t sequence) {
  constexpr std::int64_t kLengths[] = {11, 2, 5, 1, 19, 3, 7};
  program::PackedSequence packed;
  const std::int64_t multiple = plan.workload.documents.pad_multiple;
  for (std::int64_t i = 0;; ++i) {
    const std::int64_t length = kLengths[static_cast<std::size_t>((sequence * 3 + i) % 7)];
    const std::int64_t padded = (length + multiple - 1) / multiple * multiple;
    if (packed.padded.back() + padded > plan.workload.seq_len) return packed;
    packed.append(length, padded);
  }
}

StepBatch packed_batch(const program::Plan& plan, const program::Coordinates& place,
                       std::uint64_t seed) {
  StepBatch batch;
  load_packed(
      plan, place, [&](std::int64_t sequence) { return twin_sequence(plan, sequence, seed); },
      batch);
  for (std::int64_t sequence = 0; sequence < plan.workload.global_batch_size; ++sequence)
    batch.loss_tokens += static_cast<double>(documents_of(plan, sequence).loss_tokens());
  return batch;
}

}  // namespace

PackedTokens twin_sequence(const program::Plan& plan, std::int64_t sequence, std::uint64_t seed) {
  return packed_tokens(
      documents_of(plan, sequence), plan.workload.seq_len, *plan.workload.documents.end_of_document,
      [&](int document, std::int64_t position) {
        return token(seed, sequence * 5 + document, position, plan.model.vocab_size);
      });
}

StepBatch twin_batch(const program::Plan& plan, const program::Coordinates& place,
                     std::uint64_t seed) {
  if (plan.workload.documents.packed) return packed_batch(plan, place, seed);
  StepBatch batch;
  const int vocabulary = plan.model.vocab_size;
  const bool classes = plan.model.num_classes > 0;
  if (classes) batch.loss_tokens = static_cast<double>(plan.workload.global_batch_size);
  const program::ContextShard own =
      program::context_shard(plan.workload.seq_len, plan.parallel.cp, place.cp);
  for (int m = 0; m < plan.num_microbatches(); ++m)
    for (int i = 0; i < plan.micro_batch_size; ++i) {
      const auto [sequence, is_empty] = held_sequence(plan, m, place.dp, i);
      for (std::int64_t t = 0; t < own.length; ++t) {
        const std::int64_t position = own.position(t);
        batch.ids.push_back(token(seed, sequence, position, vocabulary));
        batch.targets.push_back(classes || is_empty
                                    ? kernels::kIgnoredTarget
                                    : token(seed, sequence, position + 1, vocabulary));
      }
      if (classes && !is_empty)
        batch.targets[static_cast<std::size_t>(m * plan.tokens_per_microbatch() + i)] =
            static_cast<std::int32_t>(sequence % plan.model.num_classes);
    }
  return batch;
}

}  // namespace meshplan::runtime
