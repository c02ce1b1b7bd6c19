// One guardian's connections to the guardians of the other machines (peer_link.hpp): who is there,
// who has left, who is lost, and who calls again.
#pragma once

#include <map>
#include <optional>
#include <poll.h>
#include <vector>

#include "core/units.hpp"
#include "guard/guardian.hpp"
#include "guard/peer_link.hpp"
#include "meet/handshake.hpp"
#include "os/tcp_socket.hpp"

namespace meshplan::runtime {

/// A star around the machine of rank 0, whose guardian listens and whom all others call. A guardian
/// that takes another's place (spare.hpp) calls again, or is called again: a connection that was
/// closed is no loss, silence for longer than kSilenceOfMachine is.
class MachineLinks {
 public:
  static constexpr Seconds kSilenceOfMachine{
      8.0};  // TCP may need a second or two on a busy machine

  explicit MachineLinks(const GuardianNetwork& network);

  bool is_root() const { return network_.machine == 0; }
  /// Not for the root: calls it until it answers. Never longer than `timeout` and what one name
  /// takes to be looked up. @returns whether it is connected to the root now
  bool reach_root(Seconds timeout, double now_s);
  bool has_root() const;
  /// It is connected, or was, and its guardian may be replaced any moment. False for the root
  /// itself, and where the root was never reached, has left or is lost.
  bool expects_root() const;

  void add_to(std::vector<pollfd>& fds) const;
  void send(const Frame& frame);
  /// What has arrived, `Frame::machine` being who has proved to be that machine. Lets newcomers in.
  /// @param now_s  on one clock in all calls
  std::vector<Frame> receive(double now_s);
  /// A machine that has said nothing for too long and did not say that it leaves; each once.
  std::optional<int> lost_machine(double now_s);
  bool all_departed() const;  // in peace or lost
  /// Reads on until the others have hung up, a second at most: closing a socket with unread data
  /// discards what was sent.
  void drain();

 private:
  struct Peer {
    PeerLink link;
    double heard_s = 0;
    bool departed = false;
  };
  Secret secret() const { return Secret::from_bytes(network_.key); }
  void connect(int machine, Socket socket, double now_s);
  void call_again(double now_s);

  GuardianNetwork network_;
  std::optional<Door> door_;   // of the root
  std::map<int, Peer> peers_;  // by machine; of all but the root: the root, or nobody
  double called_s_ = 0;
};

}  // namespace meshplan::runtime
