#include "layer/vocabulary.hpp"

namespace meshplan::program {

namespace {

constexpr std::int64_t kVocabularyMultiple = 128;

}  // namespace

std::int64_t padded_vocabulary(std::int64_t vocab_size, int tp) {
  const std::int64_t multiple = kVocabularyMultiple * tp;
  return (vocab_size + multiple - 1) / multiple * multiple;
}

}  // namespace meshplan::program
