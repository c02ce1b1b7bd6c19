// What every rank of a machine is doing, in memory that they share with their guardian.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// Longer texts are cut.
constexpr std::size_t kStatusBytes = 192;

enum class RankState : std::int32_t {
  Starting,
  Working,
  Waiting,
  Finished,     // may end now
  Failed,       // ends with an error that it reports itself
  Interrupted,  // ends because it was told to by a signal
};

/// One rank's line. Written by its rank only, read by the guardian, without locks: a text that is
/// read while it is written is read again.
struct alignas(64) StatusSlot {
  std::atomic<std::int32_t> rank{-1};
  std::atomic<std::int32_t> pid{0};
  std::atomic<std::int32_t> starter{0};  // the process that it must not outlive; 0 = none
  std::atomic<RankState> state{RankState::Starting};
  std::atomic<std::int32_t> awaited_rank{-1};
  std::atomic<std::int64_t> progress_ns{0};  // monotonic clock, last sign of progress
  std::atomic<std::uint32_t> version{0};     // odd while the text is written
  std::array<std::atomic<std::uint64_t>, kStatusBytes / 8> text{};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Nanoseconds of the machine's monotonic clock, the same in all its processes.
std::int64_t monotonic_ns();

void write_text(StatusSlot& slot, std::string_view text) noexcept;
std::string read_text(const StatusSlot& slot);

/// The writing side of one slot; every call costs some tens of nanoseconds.
class StatusBoard final : public WaitObserver {
 public:
  explicit StatusBoard(StatusSlot& slot) : slot_(&slot) {}

  /// Goes before every later text: "step 12". Empty: nothing does.
  void set_context(std::string_view context) noexcept;
  /// What this rank does now, e.g. "stage 1, micro-batch 3, forward of layer 4". Also a sign of
  /// progress.
  void set(std::string_view text) noexcept;
  /// A sign of progress without a new text.
  void progress() noexcept;

  void wait_begins(std::optional<int> peer_world_rank) noexcept override;
  void wait_ends() noexcept override;

 private:
  StatusSlot* slot_;
  std::array<char, kStatusBytes> line_{};  // context, then text
  std::size_t context_bytes_ = 0;
};

}  // namespace meshplan::runtime
