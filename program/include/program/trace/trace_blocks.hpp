// Traces out of files of any length.
#pragma once

#include <cstddef>
#include <string>

#include "core/text_blocks.hpp"
#include "program/trace/trace.hpp"

namespace meshplan::program {

/// The most of a file's spans that is held: their bytes, with those of their names.
constexpr std::size_t kMostSpansBytes = std::size_t{1} << 28;

/// As parse_trace; holds no more of the text than a span and what is no span.
/// @throws ConfigError as parse_trace, for more spans than limits::kRecordedOperations, or of more
/// than kMostSpansBytes
Trace parse_trace(const TextBlocks& text, const std::string& file);

}  // namespace meshplan::program
