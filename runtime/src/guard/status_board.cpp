#include "runtime/guard/status_board.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>

namespace meshplan::runtime {

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void write_text(StatusSlot& slot, std::string_view text) noexcept {
  std::array<std::uint64_t, kStatusBytes / 8> words{};
  std::memcpy(words.data(), text.data(), std::min(text.size(), kStatusBytes - 1));
  const std::uint32_t version = slot.version.load(std::memory_order_relaxed);
  slot.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 0; i < words.size(); ++i)
    slot.text[i].store(words[i], std::memory_order_relaxed);
  slot.version.store(version + 2, std::memory_order_release);
}

std::string read_text(const StatusSlot& slot) {
  std::array<std::uint64_t, kStatusBytes / 8> words{};
  // A rank that was killed while it wrote leaves an odd version for ever: then show what is there.
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint32_t before = slot.version.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = slot.text[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && slot.version.load(std::memory_order_relaxed) == before) break;
  }
  std::array<char, kStatusBytes> text{};
  std::memcpy(text.data(), words.data(), text.size());
  return {text.data(), strnlen(text.data(), text.size())};
}

void StatusBoard::set_context(std::string_view context) noexcept {
  context_bytes_ = 0;
  if (context.empty()) return;
  constexpr std::string_view kComma = ", ";
  context_bytes_ = context.substr(0, line_.size() / 2).copy(line_.data(), line_.size());
  context_bytes_ += kComma.copy(line_.data() + context_bytes_, kComma.size());
}

void StatusBoard::set(std::string_view text) noexcept {
  const std::size_t copied =
      text.copy(line_.data() + context_bytes_, line_.size() - context_bytes_);
  write_text(*slot_, {line_.data(), context_bytes_ + copied});
  progress();
}

void StatusBoard::progress() noexcept {
  slot_->progress_ns.store(monotonic_ns(), std::memory_order_relaxed);
  slot_->state.store(RankState::Working, std::memory_order_relaxed);
}

void StatusBoard::wait_begins(std::optional<int> peer_world_rank) noexcept {
  slot_->awaited_rank.store(peer_world_rank.value_or(-1), std::memory_order_relaxed);
  slot_->state.store(RankState::Waiting, std::memory_order_relaxed);
}

void StatusBoard::wait_ends() noexcept {
  progress();
}

}  // namespace meshplan::runtime
