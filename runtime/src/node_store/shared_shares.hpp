// Shares in the stores of several nodes, read by all ranks: locally where they lie on a rank's own
// node, else by messages of the rank that serves them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "node_store/node_ring.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/node_store/recovery.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::runtime {

/// A share, and who reads it for the others.
struct ServedShare {
  int server = 0;        // a rank of this job
  std::string path;      // there, and on all ranks of its node
  bool is_here = false;  // on this rank's node
};

/// One request and one reply of a rank are in flight at a time, of a box of one parameter: memory
/// that is bounded by the largest box that a rank reads.
class SharedShares final : public RecoveredState {
 public:
  /// Collective over `world`.
  /// @param shares  by rank of the job that wrote them
  SharedShares(Communicator& world, CheckpointIndex index, std::vector<ServedShare> shares,
               std::string label);
  ~SharedShares() override;

  const CheckpointIndex& index() const override { return index_; }
  const std::string& label() const override { return label_; }

  bool has(const std::string& state, const std::string& parameter) const override {
    return tensors_.contains({state, parameter});
  }
  void read(const std::string& state, const std::string& parameter,
            const TensorTarget& target) override;
  std::string not_finite(const std::string& state, const std::string& parameter,
                         DType dtype) override;
  void finish() override;

 private:
  /// What is asked of a server, in a message: a box of the piece `piece` of the tensor `tensor`.
  struct Request {
    static constexpr std::size_t kMostDims = 8;
    std::int64_t tensor = 0;  // of the index; kNoMore: the rank has read all
    std::int64_t piece = 0;
    std::int64_t begin[kMostDims] = {};
    std::int64_t size[kMostDims] = {};
  };
  static constexpr std::int64_t kNoMore = -1;
  /// What this rank does for another one.
  struct Client {
    Request request;
    Handle asks;
    std::vector<float> values;
    Handle reply;
    bool is_done = false;
  };

  const ServedShare& share_of(const CheckpointPiece& piece) const;
  std::span<const std::byte> data_of(const CheckpointPiece& piece);
  void read_remote(std::size_t tensor, std::size_t piece, const TensorBox& box,
                   const TensorTarget& target);
  void listen(int peer);
  void serve();
  void answer(int peer);

  std::unique_ptr<Communicator> group_;
  CheckpointIndex index_;
  std::vector<ServedShare> shares_;
  std::string label_;
  std::map<std::pair<std::string, std::string>, std::size_t> tensors_;  // by index
  std::map<std::string, std::size_t> share_of_file_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;  // of this node, by path
  std::vector<Client> clients_;                                    // by rank
};

}  // namespace meshplan::runtime
