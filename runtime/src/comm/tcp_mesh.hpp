// Messages over one TCP connection between every two ranks of a job. One thread, nothing blocks:
// whoever asks for a message moves all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/channel.hpp"
#include "os/tcp_socket.hpp"

namespace meshplan::runtime {

class TcpMesh {
 public:
  /// @param sockets  connected, one for each rank; none for this one
  TcpMesh(int rank, std::vector<Socket> sockets);
  /// Says that nothing more comes and hears the others say so, for up to 10 s; while an exception
  /// unwinds it just closes.
  ~TcpMesh();
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;

  /// Where a message belongs: tags of different groups are different.
  struct Label {
    std::uint64_t group = 0;
    std::int32_t tag = 0;
    bool operator==(const Label&) const = default;
  };
  using Request = Channel::Request;
  Request send(int peer, Label label, const void* data, std::int64_t bytes);
  Request recv(int peer, Label label, void* data, std::int64_t bytes);
  /// Bytes once it is done; what a receive did not expect of them is thrown away. `failed` = why it
  /// never will be: the peer is gone, or has sent what no rank can have sent.
  struct Outcome {
    std::optional<std::string> failed;
    std::optional<std::int64_t> bytes;
  };
  Outcome test(Request request);
  void abandon(Request request) noexcept;

  std::uint64_t new_group() { return ++groups_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

 private:
  struct Header {
    std::uint64_t group = 0;
    std::int64_t bytes = 0;
    std::int32_t tag = 0;
    std::int32_t unused = 0;
  };
  enum class State { Free, Running, Done, Failed };
  struct Slot {
    State state = State::Free;
    int peer = 0;
    std::int64_t bytes = 0;
  };
  struct Outgoing {
    Header header;
    std::size_t header_sent = 0;
    const std::byte* data = nullptr;
    std::int64_t sent = 0;
    std::optional<Request> request;   // none: abandoned
    std::vector<std::byte> own_data;  // of an abandoned one
  };
  struct Posted {
    Label label;
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
    Request request = 0;
  };
  struct Unexpected {
    Label label;
    std::int64_t bytes = 0;       // announced
    std::vector<std::byte> data;  // grows as they come: an announcement alone takes no memory
    bool complete = false;
  };
  /// The message that is being read.
  struct Incoming {
    Header header;
    std::size_t header_got = 0;
    std::int64_t got = 0;
    std::optional<Posted> posted;      // else
    Unexpected* unexpected = nullptr;  // else it is thrown away
  };
  struct Peer {
    Socket socket;
    bool closed = false;
    std::string why_closed;
    std::deque<Outgoing> outgoing;
    std::deque<Posted> posted;
    std::deque<std::unique_ptr<Unexpected>> unexpected;
    Incoming incoming;
  };

  Request new_request(int peer);
  void finish(Request request, std::int64_t bytes);
  void deliver_to_self(Label label, const void* data, std::int64_t bytes);
  /// Takes what has come and is wanted by `posted`; false if nothing has.
  bool take_unexpected(Peer& peer, const Posted& posted);
  /// The rest of what is being read belongs to `posted`; if it is too long, nobody wants it.
  void attach(Incoming& incoming, const Posted& posted);
  void progress();
  void write_to(Peer& peer);
  void read_from(Peer& peer);
  bool read_header(Peer& peer);
  bool read_body(Peer& peer);
  /// False if the connection cannot be used any more.
  bool begin_body(Peer& peer);
  static void grow(Unexpected& message, std::int64_t got);
  void end_body(Peer& peer);
  /// Bytes read into `to`, or dropped if null; 0 = none now.
  std::int64_t receive(Peer& peer, void* to, std::int64_t most);
  void close_peer(Peer& peer, std::string_view why);

  int rank_;
  std::vector<Peer> peers_;
  std::vector<Slot> slots_;
  std::vector<Request> free_slots_;
  std::uint64_t groups_ = 0;
};

/// All ranks of a mesh. Called by all of them at once.
std::unique_ptr<Channel> make_tcp_channel(std::shared_ptr<TcpMesh> mesh);

}  // namespace meshplan::runtime
