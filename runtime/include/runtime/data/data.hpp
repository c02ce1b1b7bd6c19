// Training data: a file of tokens, cut into sequences, in an order that depends on the seed alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/input_file.hpp"
#include "program/plan/mesh.hpp"
#include "program/plan/plan.hpp"
#include "runtime/data/document_index.hpp"
#include "runtime/execute/step_batch.hpp"

namespace meshplan::runtime {

/// How a file holds tokens. Bytes: any text, one token a byte (vocabulary 256).
enum class TokenFormat { Bytes, Uint16, Uint32 };

/// A token file: *.u16 and *.u32 (also *.bin, as uint16) hold little-endian token ids, everything
/// else is text read by bytes. It is read where it is wanted, not mapped: a mapped file that
/// somebody cuts ends the process by SIGBUS. For one thread.
class TokenFile {
 public:
  /// @throws ConfigError if it is missing, empty, no regular file or holds a part of a token;
  /// IoError if it cannot be read. Both name the file.
  explicit TokenFile(const std::string& path);

  const std::string& path() const { return path_; }
  TokenFormat format() const { return format_; }
  std::int64_t size() const { return size_; }  // tokens, when it was opened
  /// @throws IoError if the file has become shorter, or cannot be read; it names the file
  std::int32_t operator[](std::int64_t index) const;

 private:
  /// `count` bytes from `byte` on, valid until the next call.
  const unsigned char* at(std::int64_t byte, std::int64_t count) const;
  /// @returns how many bytes there are, up to all
  std::size_t read(std::int64_t byte, std::span<unsigned char> out) const;

  std::string path_;
  TokenFormat format_ = TokenFormat::Bytes;
  InputFile file_;
  std::int64_t bytes_ = 0;
  std::int64_t size_ = 0;
  mutable std::vector<unsigned char> window_;  // what was read last
  mutable std::int64_t window_begin_ = 0;
};

/// A permutation of [0, size) that needs no memory: a Feistel network over the next power of four,
/// walked until it lands inside (Black & Rogaway 2002, section 4). Each seed gives another one.
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t seed);
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::int64_t size_;
  std::uint64_t seed_;
  int half_bits_;
};

/// Tokens [begin, end) of a file.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Tokens from where one sequence of the file begins to where the next one does: seq_len, and for a
/// classifier one more, the sequence's class.
std::int64_t sequence_stride(const program::Plan& plan);

/// The file in two: the tail, a twentieth but at least one global batch, is held out for
/// evaluation. A classifier's sequences stay whole.
struct DataSplit {
  TokenRange training;
  TokenRange evaluation;
};
DataSplit hold_out_tail(const TokenFile& file, const program::Plan& plan);

/// The sequence of the step that a place of a micro-batch holds. An empty one (Plan::uneven_batch)
/// has tokens of the first sequence of its micro-batch, else of the step, and no target: values of
/// a micro-batch have the same range with and without it, and so the same scales in FP8.
struct HeldSequence {
  std::int64_t place_in_step = 0;
  bool is_empty = false;
};
/// @param i  in the micro-batch
HeldSequence held_sequence(const program::Plan& plan, int microbatch, int dp, int i);

/// Which sequences a step trains on. Sequence i is tokens [i S, i S + S] of the file: S inputs,
/// each with the next token as target. A classifier's (docs/encoders.md) is S tokens and then its
/// class, S + 1 from the one before, and the class is the only target. Every epoch visits every
/// sequence once, in its own order; a step takes the next `global_batch_size`, whatever the plan.
/// With packed documents a sequence is one of the DocumentIndex instead.
class Sampler {
 public:
  /// @throws ConfigError if the part holds less than one global batch, or is no whole number of a
  /// classifier's sequences
  Sampler(const TokenFile& file, TokenRange part, const program::Plan& plan, std::uint64_t seed);

  std::int64_t num_sequences() const { return num_sequences_; }
  /// Looks at the class of every sequence. @throws ConfigError for the first that the model lacks
  void check_classes() const;
  /// Sequence at place `position` of the whole run: position = step * global_batch_size + place in
  /// step.
  std::int64_t sequence(std::int64_t position) const;
  /// Where the inputs of a sequence lie in the file: one range, or one for each packed document.
  std::vector<TokenRange> tokens(std::int64_t sequence) const;
  /// All micro-batches of the rank at `place`: the sequences of its dp rank, and of each the tokens
  /// of its cp rank. Empty sequences have no targets (HeldSequence). Allocates only on the first
  /// call, but for packed documents.
  /// @throws ConfigError for a token outside the vocabulary, or a class that the model does not
  /// have
  void load(std::int64_t step, const program::Coordinates& place, StepBatch& batch) const;

 private:
  void load_documents(std::int64_t step, const program::Coordinates& place, StepBatch& batch) const;
  void load_classes(std::int64_t step, const program::Coordinates& place, StepBatch& batch) const;
  std::int32_t checked(std::int64_t index) const;
  std::int32_t class_at(std::int64_t index) const;
  std::int64_t first_token(std::int64_t sequence) const { return part_.begin + sequence * stride_; }

  const TokenFile& file_;
  TokenRange part_;
  const program::Plan& plan_;
  std::uint64_t seed_;
  std::int64_t stride_;
  std::int64_t num_sequences_;
  std::optional<DocumentIndex> documents_;
};

}  // namespace meshplan::runtime
