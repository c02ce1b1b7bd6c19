// Guardians of several machines: a star of TCP connections around the machine of rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "os/tcp_socket.hpp"
#include "runtime/guard/status_board.hpp"

namespace meshplan::runtime {

/// One fixed-size message. Every machine of a job runs the same program, so the layout is shared.
struct Frame {
  enum class Kind : std::int32_t {
    Alive,   // both ways, each tick
    Status,  // machine -> root: one rank's view
    Cause,   // both ways: the job ends, and why
    Bye,     // machine -> root: all its ranks have finished
  };
  Kind kind = Kind::Alive;
  std::int32_t machine = 0;
  std::int32_t rank = 0;
  std::int32_t pid = 0;
  RankState state = RankState::Starting;
  std::int32_t awaited_rank = -1;
  double since_progress_s = 0;
  double stopped_s = -1;  // -1 = not stopped
  std::int32_t traced = 0;
  std::int32_t gone = 0;
  std::int32_t lost_rank = -1;     // of a Cause: for which the job ends; -1 = none
  std::int32_t lost_machine = -1;  // likewise, with all of its ranks
  char text[1024] = {};
};

/// A connection that sends and receives whole frames without blocking. Who is at its other end has
/// proved to be a guardian of this job (handshake.hpp).
class PeerLink {
 public:
  explicit PeerLink(Socket socket) : socket_(std::move(socket)) {}

  int socket() const { return socket_.get(); }
  bool is_open() const { return open_; }
  void send(const Frame& frame);
  /// Frames that have arrived; notices a closed connection.
  std::vector<Frame> receive();

 private:
  void flush();

  Socket socket_;
  bool open_ = true;
  std::vector<std::byte> incoming_;
  std::vector<std::byte> outgoing_;
};

}  // namespace meshplan::runtime
