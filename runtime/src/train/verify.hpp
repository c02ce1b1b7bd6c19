// Proves while a run goes on that ranks which hold the same hold the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/shard_layout.hpp"
#include "train/trainer.hpp"

namespace meshplan::runtime {

/// Compares hashes (XXH3, 64 bits) of every box of every parameter with those of all other ranks
/// that hold the same box of the same global tensor. Which ranks agree follows from the layout
/// alone: replicas over dp and cp, what tp does not shard, key/value heads that several ranks hold,
/// both copies of a tied embedding, experts over their own replicas.
class ReplicaVerifier {
 public:
  ReplicaVerifier(Trainer& trainer, Communicator& world);

  /// Compares the reduced gradients, the weights and their fp32 master copies, in this order: a
  /// gradient that differs is the cause of a weight that differs. Collective over the world.
  /// @param when  opens the message: "step 12"
  /// @throws SharedError naming the first box that differs, the ranks, and both hashes
  void verify(const std::string& when);

  /// Compares what training starts from: the weights, their master copies, the optimizer's moments.
  /// Reads 8 bytes a parameter that the rank holds (16 in bf16 with Adam) and sends 16 bytes a
  /// tensor. Collective, and throws, as verify.
  void verify_state(const std::string& when);

 private:
  struct Box {
    std::size_t parameter = 0;
    program::MatrixPiece piece;
    std::uint64_t identity = 0;  // of the parameter's name and the box in the global tensor
    program::FlatRange owned;    // ZeRO: what the rank owns of the parameter, instead of the piece
  };
  void add_owned_boxes();
  std::uint64_t hash_of(const Box& box, program::Region region) const;

  struct Entry {  // what travels
    std::uint64_t identity = 0;
    std::uint64_t hash = 0;
  };

  std::vector<Entry> entries(program::Region region);
  void compare(program::Region region, const std::string& when);
  [[noreturn]] void report(program::Region region, const std::string& when,
                           const std::vector<Entry>& all, std::size_t different);

  Trainer& trainer_;
  Communicator& world_;
  std::vector<Box> boxes_;
  std::size_t most_boxes_ = 0;  // of any rank
};

}  // namespace meshplan::runtime
