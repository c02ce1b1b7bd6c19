// The files in a node's store that take the newest states of one share, in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/node_store/node_store_options.hpp"

namespace meshplan::runtime {

/// A file is allocated once and mapped; a new state overwrites the oldest one in place, so saving
/// costs one copy of memory, and a full file system is noticed before anything is written to it.
class ShareSlots {
 public:
  /// Allocates the first file. @param header  of the safetensors file
  /// @throws IoError, as all that allocates: "No space left on device"
  ShareSlots(std::string store, int rank, std::vector<std::byte> header, std::int64_t data_bytes);
  /// Unmaps, leaves the files.
  ~ShareSlots();
  ShareSlots(ShareSlots&& other) noexcept;
  ShareSlots(const ShareSlots&) = delete;
  ShareSlots& operator=(const ShareSlots&) = delete;

  int rank() const { return rank_; }
  int allocated() const { return static_cast<int>(slots_.size()); }
  /// One more file, up to kSharesKept.
  void allocate();

  /// Takes the file of the oldest state, which ceases to count, for that of `step`.
  /// @returns where the data goes
  std::span<std::byte> begin(std::int64_t step);
  /// Where the data is that was begun last.
  std::span<std::byte> data() const;
  /// Writes the index of what was begun last under a name by which it does not count yet.
  void write_index(const std::string& text) const;
  /// The state that was begun last counts from here on. Returns at once.
  void complete();
  /// From here on memory stays mapped until the process ends: something may still write to it.
  void keep_mapped() { stays_mapped_ = true; }

 private:
  struct Slot {
    std::string path;  // where the file is now
    std::optional<std::int64_t> step;
    std::byte* memory = nullptr;
  };

  std::int64_t file_bytes() const { return std::ssize(header_) + data_bytes_; }
  Slot& oldest();

  std::string store_;
  int rank_;
  std::vector<std::byte> header_;
  std::int64_t data_bytes_;
  std::vector<Slot> slots_;
  std::size_t current_ = 0;
  bool stays_mapped_ = false;
};

}  // namespace meshplan::runtime
