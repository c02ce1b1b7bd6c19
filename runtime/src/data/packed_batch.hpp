// Batches of packed documents: what a rank's program reads of its sequences.
#pragma once

#include <functional>
#include <span>

#include "program/context/document_context.hpp"
#include "program/context/packing.hpp"
#include "program/plan/mesh.hpp"
#include "runtime/execute/step_batch.hpp"

namespace meshplan::runtime {

/// A packed sequence: where its documents lie, and token and target of each position. A position
/// whose token ends its document, or that is padding, has target -1: it does not count in the loss.
struct PackedTokens {
  program::PackedSequence documents;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> targets;
};

/// Lays documents into a sequence. @param tokens  of each document, as `documents` says
/// @param padding  the token that stands where no document is
PackedTokens packed_tokens(const program::PackedSequence& documents, std::int64_t seq_len,
                           std::int32_t padding,
                           const std::function<std::int32_t(int document, std::int64_t)>& token);

/// All of a step for the rank at `place`, but how many tokens count in the loss of all ranks.
/// @param sequence  by its place in the global batch
void load_packed(const program::Plan& plan, const program::Coordinates& place,
                 const std::function<PackedTokens(std::int64_t)>& sequence, StepBatch& batch);

}  // namespace meshplan::runtime
