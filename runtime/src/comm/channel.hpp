// Messages between the ranks of one group, whoever carries them: what the schedules of collectives
// are played on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "program/calibration/collective_table.hpp"

namespace meshplan::runtime {

/// For messages of errors: which call of which group.
struct CallName {
  const std::string& operation;
  const std::string& group;
};

/// A group as its carrier knows it. Peers are ranks of the group. Messages between two ranks with
/// equal tags arrive in the order in which they were started.
class Channel {
 public:
  using Request = std::uint64_t;  // a message in flight, in the carrier's own terms

  Channel() = default;
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// `data` must stay until test() gave a number. @throws CommError
  virtual Request start_send(int peer, int tag, const void* data, std::int64_t bytes,
                             const CallName& call) = 0;
  virtual Request start_recv(int peer, int tag, void* data, std::int64_t bytes,
                             const CallName& call) = 0;
  /// Bytes that came or went, once it is done; the request is then gone.
  /// @throws CommError if the peer is gone
  virtual std::optional<std::int64_t> test(Request& request, std::optional<int> peer,
                                           const CallName& call) = 0;
  /// Nobody will ask for it again. Returns soon; what had been sent may still arrive.
  virtual void abandon(Request request, bool is_recv) noexcept = 0;

  /// A collective of the carrier's own, by bytes; only where nothing is reduced.
  struct LibraryCall {
    program::CommOp op = program::CommOp::Barrier;
    const void* send = nullptr;
    void* recv = nullptr;
    std::int64_t block_bytes = 0;  // of a block; of the whole buffer for a broadcast
    int root = 0;
  };
  virtual bool has_library() const { return false; }
  /// May several threads call it, one at a time?
  virtual bool serves_threads() const { return true; }
  virtual Request start_library(const LibraryCall& library, int rank, const CallName& call);

  /// Called by all members at once, as Communicator::create_group.
  /// @returns null where this rank is not among `ranks`
  virtual std::unique_ptr<Channel> create_group(std::span<const int> ranks,
                                                const std::string& label) = 0;
};

}  // namespace meshplan::runtime
