// Rows of FP8 numbers with a scale for each block of them, packed in words of 32 bits, so that they
// are moved like rows of fp32: the scales, then the codes, four to a word.
#pragma once

#include <cstdint>

namespace meshplan {

constexpr std::int64_t kFloat8Block = 128;  // numbers that share a scale
constexpr std::int64_t kFloat8PerWord = 4;

constexpr std::int64_t float8_blocks(std::int64_t size) {
  return (size + kFloat8Block - 1) / kFloat8Block;
}

/// Words of a row of `size` numbers, a multiple of kFloat8PerWord.
constexpr std::int64_t float8_row_words(std::int64_t size) {
  return float8_blocks(size) + size / kFloat8PerWord;
}

}  // namespace meshplan
