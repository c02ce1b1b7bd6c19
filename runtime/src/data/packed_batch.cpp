#include "data/packed_batch.hpp"

#include <algorithm>

#include "kernels/training/cross_entropy.hpp"
#include "program/context/packing.hpp"
#include "runtime/data/data.hpp"

namespace meshplan::runtime {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// The part of an array of all micro-batches that is of one.
std::span<std::int32_t> part_of(std::vector<std::int32_t>& all, int microbatch,
                                std::int64_t elements) {
  return std::span(all).subspan(at(microbatch * elements), at(elements));
}

}  // namespace

PackedTokens packed_tokens(const program::PackedSequence& documents, std::int64_t seq_len,
                           std::int32_t padding,
                           const std::function<std::int32_t(int document, std::int64_t)>& token) {
  PackedTokens packed{.documents = documents,
                      .ids = std::vector<std::int32_t>(at(seq_len), padding),
                      .targets = std::vector<std::int32_t>(at(seq_len), kernels::kIgnoredTarget)};
  for (int d = 0; d < documents.num_documents(); ++d) {
    const program::Document document = documents.document(d);
    for (std::int64_t i = 0; i < document.length; ++i) {
      packed.ids[at(document.begin + i)] = token(d, i);
      if (i > 0) packed.targets[at(document.begin + i - 1)] = packed.ids[at(document.begin + i)];
    }
  }
  return packed;
}

void load_packed(const program::Plan& plan, const program::Coordinates& place,
                 const std::function<PackedTokens(std::int64_t)>& sequence, StepBatch& batch) {
  const program::BatchSizes sizes = program::batch_sizes(plan);
  const int microbatches = plan.num_microbatches();
  const std::int64_t of_rank = plan.workload.seq_len / plan.parallel.cp;
  batch.ids.resize(at(microbatches * sizes.ids));
  batch.targets.resize(at(microbatches * sizes.ids));
  batch.positions.resize(at(microbatches * sizes.positions));
  batch.key_ranges.resize(at(microbatches * sizes.key_ranges));
  batch.order.resize(at(microbatches * sizes.order));
  for (int m = 0; m < microbatches; ++m) {
    std::vector<PackedTokens> tokens;
    std::vector<program::PackedSequence> documents;
    for (int i = 0; i < plan.micro_batch_size; ++i) {
      const HeldSequence held = held_sequence(plan, m, place.dp, i);
      tokens.push_back(sequence(held.place_in_step));
      if (held.is_empty) std::ranges::fill(tokens.back().targets, kernels::kIgnoredTarget);
      documents.push_back(tokens.back().documents);
    }
    const std::vector<std::int64_t> held =
        program::fill_document_arrays(plan, place.cp, documents,
                                      {.positions = part_of(batch.positions, m, sizes.positions),
                                       .key_ranges = part_of(batch.key_ranges, m, sizes.key_ranges),
                                       .order = part_of(batch.order, m, sizes.order)});
    for (std::int64_t row = 0; row < std::ssize(held); ++row) {
      const PackedTokens& from = tokens[at(row / of_rank)];
      batch.ids[at(m * sizes.ids + row)] = from.ids[at(held[at(row)])];
      batch.targets[at(m * sizes.ids + row)] = from.targets[at(held[at(row)])];
    }
  }
}

}  // namespace meshplan::runtime
