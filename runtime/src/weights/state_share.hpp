// A rank's share of the state of training, as a safetensors file of it is laid out: on the disk and
// in the memory of nodes alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/weights/checkpoint.hpp"
#include "weights/checkpoint_layout.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::kernels {
class Backend;
}

namespace meshplan::runtime {

class Arena;

/// Which boxes of which parameters the rank saves (saved_states, snapshot_runs, saved_boxes), in
/// the order of the file's tensors.
class StateShare {
 public:
  StateShare(const program::Program& program, const SaverPlace& place);

  /// The tensors of the file, all fp32.
  const std::vector<SafeTensorSpec>& specs() const { return specs_; }
  static std::map<std::string, std::string> metadata() { return {{"format", "meshplan"}}; }
  /// All bytes of the file before its data.
  const std::vector<std::byte>& header() const { return header_; }
  std::int64_t data_bytes() const { return data_bytes_; }
  std::int64_t file_bytes() const { return std::ssize(header_) + data_bytes_; }

  /// Copies what the arena holds now, and returns when it is copied.
  /// @param data  of the file, data_bytes() long
  void copy(kernels::Backend& backend, const Arena& arena, std::span<std::byte> data) const;

  /// XXH3 of 64 bits of each tensor's bytes, in the order of specs().
  std::vector<std::uint64_t> hashes(std::span<const std::byte> data) const;

  /// What a file of rank `rank` with these hashes holds.
  CheckpointManifest manifest(int rank, std::span<const std::uint64_t> hashes) const;

 private:
  struct Piece {
    std::size_t state = 0;  // index into states_
    PlacedBox placed;
    std::int64_t from = 0;   // its first element in the state's region, in elements
    std::int64_t to = 0;     // its first byte in the data
    std::size_t tensor = 0;  // index into tensors_
    int number = 0;          // among the boxes of its tensor
    bool is_dense = true;    // fp32 elements that follow one another
  };

  void append(const program::Program& program, std::size_t state, const SnapshotRun& run,
              PlacedBox placed);
  void gather(const Piece& piece, kernels::Backend& backend, const std::byte* region,
              std::byte* to) const;

  std::vector<StateRegion> states_;
  std::vector<Piece> pieces_;
  std::vector<SafeTensorSpec> specs_;
  std::vector<CheckpointTensor> tensors_;  // without their pieces
  std::vector<std::byte> header_;
  std::int64_t data_bytes_ = 0;
};

/// The manifest of all shares together.
CheckpointManifest merged(std::vector<CheckpointManifest> shares);

}  // namespace meshplan::runtime
