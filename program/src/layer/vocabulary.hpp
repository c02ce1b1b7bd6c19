#pragma once

#include <cstdint>

namespace meshplan::program {

/// Vocabulary rounded up to a multiple of 128 * tp (Megatron-LM's rule M26), so that every rank
/// holds equally many rows and GEMMs stay aligned; padding never enters the loss or a checkpoint.
std::int64_t padded_vocabulary(std::int64_t vocab_size, int tp);

}  // namespace meshplan::program
