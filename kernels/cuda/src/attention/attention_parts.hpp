// A backward attention in parts that need less workspace: sequences and heads of keys do not depend
// on one another.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/attention.hpp"

namespace meshplan::kernels::cuda {

/// Heads of keys, with the query heads that read them, of some sequences.
struct AttentionPart {
  std::int64_t first_sequence = 0;
  std::int64_t sequences = 0;
  int first_kv_head = 0;
  int kv_heads = 0;
};

AttentionPart whole(const AttentionBackward& op);
/// The first half, of sequences while there are several.
AttentionPart halved(AttentionPart part);

/// Heads are divided in single sequences only, so that statistics stay dense.
AttentionBackward part_of(const AttentionBackward& op, const AttentionPart& part);
/// All parts of the size of `first`, the last ones smaller.
std::vector<AttentionBackward> parts_of(const AttentionBackward& op, const AttentionPart& first);

}  // namespace meshplan::kernels::cuda
