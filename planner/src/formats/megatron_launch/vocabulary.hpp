// How many tokens a model has where --vocab-size is missing.
#pragma once

#include "formats/megatron/reading.hpp"

namespace meshplan::planner::megatron {

/// By --padded-vocab-size, the tokenizer's type or model (planner/data/tokenizers.json), GPT-2's
/// files, else that of the preset nearest in shape, once layers and widths are read. Says where it
/// is from under what is assumed.
void assume_vocabulary(Reading& reading);

}  // namespace meshplan::planner::megatron
