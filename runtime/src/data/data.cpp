#include "runtime/data/data.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.hpp"
#include "data/packed_batch.hpp"
#include "kernels/training/cross_entropy.hpp"
#include "program/context/context.hpp"
#include "program/context/packing.hpp"

namespace meshplan::runtime {
namespace {

// A sequence is a few kilobytes: most are one read, and few bytes are read in vain.
constexpr std::int64_t kWindowBytes = 16384;

std::int64_t bytes_per_token(TokenFormat format) {
  switch (format) {
    case TokenFormat::Bytes:
      return 1;
    case TokenFormat::Uint16:
      return 2;
    case TokenFormat::Uint32:
      return 4;
  }
  return 1;
}

TokenFormat format_of(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".u16" || extension == ".bin") return TokenFormat::Uint16;
  if (extension == ".u32") return TokenFormat::Uint32;
  return TokenFormat::Bytes;
}

/// SplitMix64 (Steele et al. 2014): a good mix of 64 bits.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

TokenFile::TokenFile(const std::string& path)
    : path_(path), format_(format_of(path)), file_(path), bytes_(file_.bytes()) {
  if (bytes_ == 0) throw ConfigError(fmt::format("{}: the data file is empty", path));
  const std::int64_t token = bytes_per_token(format_);
  if (bytes_ % token != 0)
    throw ConfigError(
        fmt::format("{}: {} bytes are no whole number of {}-byte tokens", path, bytes_, token));
  size_ = bytes_ / token;
}

const unsigned char* TokenFile::at(std::int64_t byte, std::int64_t count) const {
  if (byte < window_begin_ || byte + count > window_begin_ + std::ssize(window_)) {
    window_begin_ = byte;
    window_.resize(static_cast<std::size_t>(std::min(kWindowBytes, bytes_ - byte)));
    window_.resize(read(byte, window_));
  }
  if (std::ssize(window_) < count) {
    struct stat info {};
    const bool known = ::fstat(file_.descriptor(), &info) == 0;
    throw IoError(fmt::format(
        "{}: the data file was cut while it is in use: byte {} is wanted, but of its {} bytes {} "
        "are left; restore it, then continue from the last checkpoint",
        path_, byte, bytes_, known ? std::to_string(info.st_size) : std::string("fewer")));
  }
  return window_.data() + (byte - window_begin_);
}

std::size_t TokenFile::read(std::int64_t byte, std::span<unsigned char> out) const {
  std::size_t got = 0;
  while (got < out.size()) {
    const ssize_t count = ::pread(file_.descriptor(), out.data() + got, out.size() - got,
                                  byte + static_cast<std::int64_t>(got));
    if (count == 0) break;
    if (count > 0) {
      got += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      const int error = errno;
      window_.clear();
      throw IoError(fmt::format("{}: the data file cannot be read at byte {}: {}", path_, byte,
                                std::strerror(error)));
    }
  }
  return got;
}

std::int32_t TokenFile::operator[](std::int64_t index) const {
  if (format_ == TokenFormat::Bytes) return *at(index, 1);
  if (format_ == TokenFormat::Uint16) {
    std::uint16_t token = 0;
    std::memcpy(&token, at(index * 2, 2), sizeof token);
    return token;
  }
  std::uint32_t token = 0;
  std::memcpy(&token, at(index * 4, 4), sizeof token);
  return static_cast<std::int32_t>(token);
}

Permutation::Permutation(std::int64_t size, std::uint64_t seed)
    : size_(size),
      seed_(seed),
      half_bits_(std::max(
          1, (static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size - 1))) + 1) / 2)) {}

std::int64_t Permutation::operator()(std::int64_t index) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  constexpr int kRounds = 6;
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t next =
          left ^ (mix(seed_ ^ mix(right + (static_cast<std::uint64_t>(round) << 56))) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= static_cast<std::uint64_t>(size_));
  return static_cast<std::int64_t>(value);
}

std::int64_t sequence_stride(const program::Plan& plan) {
  return plan.workload.seq_len + (plan.model.num_classes > 0 ? 1 : 0);
}

namespace {

/// A sequence's target is the token after its last, which for a classifier is part of its stride.
std::int64_t tokens_of(const program::Plan& plan, std::int64_t sequences) {
  return sequences * sequence_stride(plan) + (plan.model.num_classes > 0 ? 0 : 1);
}

}  // namespace

DataSplit hold_out_tail(const TokenFile& file, const program::Plan& plan) {
  constexpr std::int64_t kHeldOutFraction = 20;
  const std::int64_t batch = tokens_of(plan, plan.workload.global_batch_size);
  std::int64_t held_out = std::max(batch, file.size() / kHeldOutFraction);
  if (plan.model.num_classes > 0) held_out -= held_out % sequence_stride(plan);
  held_out = std::min(file.size(), held_out);
  return {.training = {0, file.size() - held_out},
          .evaluation = {file.size() - held_out, file.size()}};
}

HeldSequence held_sequence(const program::Plan& plan, int microbatch, int dp, int i) {
  const int real = program::real_sequences(plan, microbatch, dp);
  if (i < real) return {.place_in_step = program::place_in_step(plan, microbatch, dp, i)};
  return {.place_in_step = real > 0 ? program::place_in_step(plan, microbatch, dp, 0) : 0,
          .is_empty = true};
}

Sampler::Sampler(const TokenFile& file, TokenRange part, const program::Plan& plan,
                 std::uint64_t seed)
    : file_(file),
      part_(part),
      plan_(plan),
      seed_(seed),
      stride_(sequence_stride(plan)),
      num_sequences_(std::max<std::int64_t>(0, part.size() - tokens_of(plan, 0)) / stride_) {
  const program::Workload& workload = plan.workload;
  if (plan.model.num_classes > 0 && file.size() % stride_ != 0)
    throw ConfigError(fmt::format(
        "{}: {} tokens are no whole number of sequences of seq_len({}) tokens and their class, {} "
        "each, which {} (num_classes = {}) is trained on; nearest: {} tokens; or is seq_len that "
        "of the file?",
        file.path(), file.size(), workload.seq_len, stride_, plan.model.name,
        plan.model.num_classes, file.size() / stride_ * stride_));
  if (workload.documents.packed) {
    documents_.emplace(file, part, workload);
    num_sequences_ = documents_->num_sequences();
    if (num_sequences_ >= workload.global_batch_size) return;
    throw ConfigError(fmt::format(
        "{}: the documents of {} tokens (from token {} on; token {} ends each) fill {} sequences "
        "of "
        "seq_len {}, less than one global batch of {}; use more documents{}",
        file.path(), part.size(), part.begin, *workload.documents.end_of_document, num_sequences_,
        workload.seq_len, workload.global_batch_size,
        num_sequences_ > 0 ? fmt::format(", or global_batch_size <= {}", num_sequences_) : ""));
  }
  if (num_sequences_ >= workload.global_batch_size) return;
  // A sequence needs the token after its last as a target.
  const std::int64_t needed = tokens_of(plan, workload.global_batch_size);
  const std::string smaller =
      num_sequences_ > 0 ? fmt::format(", or global_batch_size <= {}", num_sequences_) : "";
  throw ConfigError(fmt::format(
      "{}: {} tokens (from token {} on) hold {} sequences of seq_len {}, less than one global "
      "batch of {}; use at least {} tokens{}",
      file.path(), part.size(), part.begin, num_sequences_, workload.seq_len,
      workload.global_batch_size, needed, smaller));
}

std::int64_t Sampler::sequence(std::int64_t position) const {
  const auto epoch = static_cast<std::uint64_t>(position / num_sequences_);
  return Permutation(num_sequences_, mix(seed_ ^ mix(epoch)))(position % num_sequences_);
}

std::vector<TokenRange> Sampler::tokens(std::int64_t sequence) const {
  if (!documents_) {
    const std::int64_t first = first_token(sequence);
    return {{first, first + plan_.workload.seq_len}};
  }
  std::vector<TokenRange> ranges;
  const program::PackedSequence& packed = documents_->sequence(sequence);
  for (int d = 0; d < packed.num_documents(); ++d) {
    const std::int64_t first = documents_->first_token(sequence, d);
    ranges.push_back({first, first + packed.document(d).length});
  }
  return ranges;
}

void Sampler::load_documents(std::int64_t step, const program::Coordinates& place,
                             StepBatch& batch) const {
  const program::Workload& workload = plan_.workload;
  const std::int64_t first = step * workload.global_batch_size;
  load_packed(
      plan_, place,
      [&](std::int64_t of_step) {
        const std::int64_t index = sequence(first + of_step);
        return packed_tokens(documents_->sequence(index), workload.seq_len,
                             *workload.documents.end_of_document,
                             [&](int document, std::int64_t i) {
                               return checked(documents_->first_token(index, document) + i);
                             });
      },
      batch);
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < workload.global_batch_size; ++i)
    tokens += documents_->sequence(sequence(first + i)).loss_tokens();
  batch.loss_tokens = static_cast<double>(tokens);
}

void Sampler::load(std::int64_t step, const program::Coordinates& place, StepBatch& batch) const {
  if (documents_) return load_documents(step, place, batch);
  if (plan_.model.num_classes > 0) return load_classes(step, place, batch);
  const std::int64_t seq_len = plan_.workload.seq_len;
  const program::ContextShard own = program::context_shard(seq_len, plan_.parallel.cp, place.cp);
  const int microbatches = plan_.num_microbatches();
  const auto tokens = static_cast<std::size_t>(microbatches * plan_.tokens_per_microbatch());
  batch.ids.resize(tokens);
  batch.targets.resize(tokens);
  const std::int64_t first_of_step = step * plan_.workload.global_batch_size;
  std::size_t out = 0;
  for (int m = 0; m < microbatches; ++m)
    for (int i = 0; i < plan_.micro_batch_size; ++i) {
      const HeldSequence held = held_sequence(plan_, m, place.dp, i);
      const std::int64_t first = first_token(sequence(first_of_step + held.place_in_step));
      for (std::int64_t t = 0; t < own.length; ++t, ++out) {
        const std::int64_t token = first + own.position(t);
        batch.ids[out] = checked(token);
        batch.targets[out] = held.is_empty ? kernels::kIgnoredTarget : checked(token + 1);
      }
    }
}

/// A micro-batch has one target a sequence, an empty one none; the rest of their place is not read.
void Sampler::load_classes(std::int64_t step, const program::Coordinates& place,
                           StepBatch& batch) const {
  const std::int64_t seq_len = plan_.workload.seq_len;
  const std::int64_t tokens = plan_.tokens_per_microbatch();
  const int microbatches = plan_.num_microbatches();
  batch.ids.resize(static_cast<std::size_t>(microbatches * tokens));
  batch.targets.assign(static_cast<std::size_t>(microbatches * tokens), kernels::kIgnoredTarget);
  const std::int64_t first_of_step = step * plan_.workload.global_batch_size;
  batch.loss_tokens = static_cast<double>(plan_.workload.global_batch_size);
  for (int m = 0; m < microbatches; ++m)
    for (int i = 0; i < plan_.micro_batch_size; ++i) {
      const HeldSequence held = held_sequence(plan_, m, place.dp, i);
      const std::int64_t first = first_token(sequence(first_of_step + held.place_in_step));
      for (std::int64_t t = 0; t < seq_len; ++t)
        batch.ids[static_cast<std::size_t>(m * tokens + i * seq_len + t)] = checked(first + t);
      if (!held.is_empty)
        batch.targets[static_cast<std::size_t>(m * tokens + i)] = class_at(first + seq_len);
    }
}

void Sampler::check_classes() const {
  for (std::int64_t sequence = 0; sequence < num_sequences_; ++sequence)
    static_cast<void>(class_at(part_.begin + (sequence + 1) * stride_ - 1));
}

std::int32_t Sampler::class_at(std::int64_t index) const {
  const std::int32_t number = file_[index];
  if (number >= 0 && number < plan_.model.num_classes) return number;
  throw ConfigError(fmt::format(
      "{}: {} at position {} is no class: after the seq_len({}) tokens of each sequence {} expects "
      "its class, 0 to {} (num_classes = {})",
      file_.path(), static_cast<std::uint32_t>(number), index, plan_.workload.seq_len,
      plan_.model.name, plan_.model.num_classes - 1, plan_.model.num_classes));
}

std::int32_t Sampler::checked(std::int64_t index) const {
  const std::int32_t token = file_[index];
  if (token >= 0 && token < plan_.model.vocab_size) return token;
  throw ConfigError(fmt::format("{}: token {} at position {} is outside the vocabulary of {}",
                                file_.path(), static_cast<std::uint32_t>(token), index,
                                plan_.model.vocab_size));
}

}  // namespace meshplan::runtime
