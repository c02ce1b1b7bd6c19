// Guardians of several machines: a star of TCP connections around the machine of rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "guardian.hpp"
#include "runtime/watchdog.hpp"

namespace meshplan::runtime {

/// One fixed-size message. Every machine of a job runs the same program, so the layout is shared.
struct Frame {
  enum class Kind : std::int32_t {
    Hello,   // machine -> root, first: who I am
    Alive,   // both ways, each tick
    Status,  // machine -> root: one rank's view
    Cause,   // both ways: the job ends, and why
    Bye,     // machine -> root: all its ranks have finished
  };
  Kind kind = Kind::Alive;
  std::int32_t machine = 0;
  std::uint64_t token = 0;
  std::int32_t rank = 0;
  std::int32_t pid = 0;
  RankState state = RankState::Starting;
  std::int32_t awaited_rank = -1;
  double since_progress_s = 0;
  double stopped_s = -1;  // -1 = not stopped
  std::int32_t traced = 0;
  char text[1024] = {};
};

/// A connection that sends and receives whole frames without blocking.
class PeerLink {
 public:
  explicit PeerLink(int socket);
  ~PeerLink();
  PeerLink(PeerLink&& other) noexcept;
  PeerLink& operator=(PeerLink&& other) noexcept;

  int socket() const { return socket_; }
  bool is_open() const { return open_; }
  void send(const Frame& frame);
  /// Frames that have arrived; notices a closed connection.
  std::vector<Frame> receive();

 private:
  void flush();

  int socket_ = -1;
  bool open_ = true;
  std::vector<std::byte> incoming_;
  std::vector<std::byte> outgoing_;
};

/// A listening socket on any free port. @throws IoError
int listen_anywhere(int& port);
/// This machine's IPv4 addresses, loopback last.
std::vector<std::string> own_addresses();
/// A connected socket, or -1 if none of the addresses answers within a few seconds.
int connect_to_any(const std::vector<std::string>& addresses, int port);
/// The next connection of a listener, or -1.
int accept_one(int listener);

}  // namespace meshplan::runtime
