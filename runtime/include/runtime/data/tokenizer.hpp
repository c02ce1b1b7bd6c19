// Text to token ids with a Hugging Face tokenizer.json: byte-pair encoding (Sennrich et al. 2016)
// on bytes (GPT-2, Llama 3, Qwen) or on characters with a fallback to bytes (SentencePiece's, Llama
// 2).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::runtime {

class Tokenizer {
 public:
  /// @param text  the JSON; @param file  its name, for messages
  /// @throws ConfigError naming the key and what is not supported
  Tokenizer(std::string_view text, const std::string& file);
  ~Tokenizer();
  Tokenizer(Tokenizer&& other) noexcept;
  Tokenizer& operator=(Tokenizer&& other) noexcept;

  /// Token ids of a document, without the special tokens that a post-processor would add. Added
  /// tokens ("<|endoftext|>") in the text are recognized.
  /// @throws ConfigError for text that is not UTF-8, naming the byte, or that it cannot express
  std::vector<std::uint32_t> encode(std::string_view document) const;
  /// The text of tokens; bytes that are no UTF-8 stay as they are. Unknown ids are left out.
  std::string decode(std::span<const std::uint32_t> tokens) const;

  /// One more than the largest id.
  std::int64_t vocab_size() const;
  std::optional<std::uint32_t> id_of(std::string_view token) const;
  /// The first of the usual names of an end-of-document token that it has.
  std::optional<std::string> end_token() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace meshplan::runtime
