#include "comm/tcp_mesh.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

#include "core/index.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kGone = "its connection is closed: that rank has ended";

/// No rank can receive more than its machine's memory holds.
std::int64_t most_message() {
  static const std::int64_t memory =
      std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  return memory;
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK;
}

}  // namespace

TcpMesh::TcpMesh(int rank, std::vector<Socket> sockets) : rank_(rank), peers_(sockets.size()) {
  for (std::size_t i = 0; i < sockets.size(); ++i) peers_[i].socket = std::move(sockets[i]);
}

TcpMesh::~TcpMesh() {
  constexpr auto kPatience = std::chrono::seconds(10);
  // Closing a socket with unread bytes would reset it, and take from the peer what it has not read.
  if (std::uncaught_exceptions() == 0) {
    const auto begin = Clock::now();
    const auto late = [&] { return Clock::now() - begin > kPatience; };
    while (!late() && std::ranges::any_of(
                          peers_, [](const Peer& p) { return !p.closed && !p.outgoing.empty(); }))
      progress();
    for (Peer& peer : peers_)
      if (peer.socket.is_open() && !peer.closed) ::shutdown(peer.socket.get(), SHUT_WR);
    while (!late() && std::ranges::any_of(
                          peers_, [](const Peer& p) { return p.socket.is_open() && !p.closed; })) {
      progress();
      ::poll(nullptr, 0, 1);
    }
  }
}

// ---------------------------------------------------------------- requests

TcpMesh::Request TcpMesh::new_request(int peer) {
  if (free_slots_.empty()) {
    free_slots_.push_back(slots_.size());
    slots_.emplace_back();
  }
  const Request request = free_slots_.back();
  free_slots_.pop_back();
  slots_[request] = {.state = State::Running, .peer = peer, .bytes = 0};
  return request;
}

void TcpMesh::finish(Request request, std::int64_t bytes) {
  slots_[request].state = State::Done;
  slots_[request].bytes = bytes;
}

TcpMesh::Request TcpMesh::send(int peer, Label label, const void* data, std::int64_t bytes) {
  const Request request = new_request(peer);
  if (peer == rank_) {
    deliver_to_self(label, data, bytes);
    finish(request, bytes);
    return request;
  }
  Peer& to = peers_[at(peer)];
  if (to.closed) {
    slots_[request].state = State::Failed;
    return request;
  }
  to.outgoing.push_back({.header = {.group = label.group, .bytes = bytes, .tag = label.tag},
                         .header_sent = 0,
                         .data = static_cast<const std::byte*>(data),
                         .sent = 0,
                         .request = request,
                         .own_data = {}});
  if (to.outgoing.size() == 1) write_to(to);
  return request;
}

TcpMesh::Request TcpMesh::recv(int peer, Label label, void* data, std::int64_t bytes) {
  const Request request = new_request(peer);
  Peer& from = peers_[at(peer)];
  const Posted posted{label, static_cast<std::byte*>(data), bytes, request};
  if (take_unexpected(from, posted)) return request;
  if (from.closed)
    slots_[request].state = State::Failed;
  else
    from.posted.push_back(posted);
  return request;
}

TcpMesh::Outcome TcpMesh::test(Request request) {
  if (slots_[request].state == State::Running) progress();
  const Slot slot = slots_[request];
  if (slot.state == State::Running) return {};
  slots_[request].state = State::Free;
  free_slots_.push_back(request);
  if (slot.state == State::Failed)
    return {.failed = peers_[at(slot.peer)].why_closed, .bytes = std::nullopt};
  return {.failed = std::nullopt, .bytes = slot.bytes};
}

void TcpMesh::abandon(Request request) noexcept {
  const Slot slot = slots_[request];
  Peer& peer = peers_[at(slot.peer)];
  std::erase_if(peer.posted, [&](const Posted& posted) { return posted.request == request; });
  if (peer.incoming.posted && peer.incoming.posted->request == request)
    peer.incoming.posted.reset();  // the rest is thrown away
  for (Outgoing& message : peer.outgoing)
    if (message.request == request) {  // what has begun must be finished, from memory of its own
      message.own_data.assign(message.data, message.data + message.header.bytes);
      message.data = message.own_data.data();
      message.request.reset();
    }
  slots_[request].state = State::Free;
  free_slots_.push_back(request);
}

// ---------------------------------------------------------------- matching

void TcpMesh::deliver_to_self(Label label, const void* data, std::int64_t bytes) {
  Peer& self = peers_[at(rank_)];
  const auto match = std::ranges::find(self.posted, label, &Posted::label);
  if (match == self.posted.end()) {
    const auto* begin = static_cast<const std::byte*>(data);
    self.unexpected.push_back(std::make_unique<Unexpected>(
        Unexpected{label, bytes, std::vector<std::byte>(begin, begin + bytes), true}));
    return;
  }
  const std::int64_t fits = std::min(bytes, match->bytes);
  if (fits > 0) std::memcpy(match->data, data, static_cast<std::size_t>(fits));
  finish(match->request, bytes);
  self.posted.erase(match);
}

bool TcpMesh::take_unexpected(Peer& peer, const Posted& posted) {
  const auto match = std::ranges::find_if(
      peer.unexpected, [&](const auto& message) { return message->label == posted.label; });
  if (match == peer.unexpected.end()) return false;
  Unexpected& message = **match;
  const std::int64_t come = message.complete ? message.bytes : peer.incoming.got;
  const std::int64_t fits = std::min(come, posted.bytes);
  if (fits > 0) std::memcpy(posted.data, message.data.data(), static_cast<std::size_t>(fits));
  if (message.complete)
    finish(posted.request, message.bytes);
  else  // it is being read: from here on into the caller's memory
    attach(peer.incoming, posted);
  peer.unexpected.erase(match);
  return true;
}

void TcpMesh::attach(Incoming& incoming, const Posted& posted) {
  incoming.unexpected = nullptr;
  incoming.posted.reset();
  if (incoming.header.bytes > posted.bytes)
    finish(posted.request, incoming.header.bytes);  // said at once, not after so many bytes
  else
    incoming.posted = posted;
}

// ---------------------------------------------------------------- sockets

void TcpMesh::progress() {
  static thread_local std::vector<pollfd> ready;
  ready.clear();
  for (const Peer& peer : peers_) {
    const short events = static_cast<short>(POLLIN | (peer.outgoing.empty() ? 0 : POLLOUT));
    ready.push_back({peer.closed ? -1 : peer.socket.get(), events, 0});  // -1 is passed over
  }
  if (::poll(ready.data(), ready.size(), 0) <= 0) return;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if ((ready[i].revents & POLLOUT) != 0) write_to(peers_[i]);
    if ((ready[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(peers_[i]);
  }
}

void TcpMesh::write_to(Peer& peer) {
  while (!peer.closed && !peer.outgoing.empty()) {
    Outgoing& message = peer.outgoing.front();
    iovec parts[2] = {{reinterpret_cast<char*>(&message.header) + message.header_sent,
                       sizeof(Header) - message.header_sent},
                      {const_cast<std::byte*>(message.data) + message.sent,
                       static_cast<std::size_t>(message.header.bytes - message.sent)}};
    msghdr send{};
    send.msg_iov = parts;
    send.msg_iovlen = 2;
    const ssize_t put = ::sendmsg(peer.socket.get(), &send, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0) {
      if (errno == EINTR) continue;
      if (!would_block()) close_peer(peer, kGone);
      return;
    }
    const std::size_t of_header =
        std::min(static_cast<std::size_t>(put), sizeof(Header) - message.header_sent);
    message.header_sent += of_header;
    message.sent += static_cast<std::int64_t>(static_cast<std::size_t>(put) - of_header);
    if (message.header_sent < sizeof(Header) || message.sent < message.header.bytes) return;
    if (message.request) finish(*message.request, message.header.bytes);
    peer.outgoing.pop_front();
  }
}

void TcpMesh::read_from(Peer& peer) {
  constexpr int kMostMessages = 64;  // then the others get their turn
  for (int i = 0; i < kMostMessages && !peer.closed; ++i)
    if (!read_header(peer) || !read_body(peer)) return;
}

std::int64_t TcpMesh::receive(Peer& peer, void* to, std::int64_t most) {
  std::byte dropped[16 << 10];
  if (to == nullptr) most = std::min<std::int64_t>(most, sizeof dropped);
  while (true) {
    const ssize_t got = ::recv(peer.socket.get(), to == nullptr ? dropped : to,
                               static_cast<std::size_t>(most), MSG_DONTWAIT);
    if (got > 0) return got;
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || !would_block()) close_peer(peer, kGone);
    return 0;
  }
}

bool TcpMesh::read_header(Peer& peer) {
  Incoming& in = peer.incoming;
  while (in.header_got < sizeof(Header)) {
    const std::int64_t got = receive(peer, reinterpret_cast<std::byte*>(&in.header) + in.header_got,
                                     static_cast<std::int64_t>(sizeof(Header) - in.header_got));
    if (got == 0) return false;
    in.header_got += static_cast<std::size_t>(got);
    if (in.header_got == sizeof(Header)) return begin_body(peer);
  }
  return true;
}

bool TcpMesh::begin_body(Peer& peer) {
  Incoming& in = peer.incoming;
  if (in.header.bytes < 0 || in.header.bytes > most_message()) {
    close_peer(peer,
               fmt::format("rank {} announced a message of {} bytes to rank {}, whose machine "
                           "has {} bytes of memory: that is no message of this job",
                           &peer - peers_.data(), in.header.bytes, rank_, most_message()));
    return false;
  }
  const Label label{in.header.group, in.header.tag};
  const auto match = std::ranges::find(peer.posted, label, &Posted::label);
  if (match != peer.posted.end()) {
    attach(in, *match);
    peer.posted.erase(match);
    return true;
  }
  peer.unexpected.push_back(std::make_unique<Unexpected>());
  in.unexpected = peer.unexpected.back().get();
  in.unexpected->label = label;
  in.unexpected->bytes = in.header.bytes;
  return true;
}

/// Room for what comes next: as much again as has come, so that an announcement takes none.
void TcpMesh::grow(Unexpected& message, std::int64_t got) {
  constexpr std::int64_t kAtOnce = 1 << 20;
  if (got < std::ssize(message.data)) return;
  const std::int64_t room = std::min(message.bytes, std::max(2 * got, kAtOnce));
  message.data.resize(static_cast<std::size_t>(room));
}

bool TcpMesh::read_body(Peer& peer) {
  Incoming& in = peer.incoming;
  while (in.got < in.header.bytes) {
    std::byte* to = nullptr;
    std::int64_t most = in.header.bytes - in.got;
    if (in.unexpected != nullptr) {
      grow(*in.unexpected, in.got);
      to = in.unexpected->data.data() + in.got;
      most = std::ssize(in.unexpected->data) - in.got;
    } else if (in.posted) {
      to = in.posted->data + in.got;
    }
    const std::int64_t got = receive(peer, to, most);
    if (got == 0) return false;
    in.got += got;
  }
  end_body(peer);
  return true;
}

void TcpMesh::end_body(Peer& peer) {
  Incoming& in = peer.incoming;
  if (in.unexpected != nullptr)
    in.unexpected->complete = true;
  else if (in.posted)
    finish(in.posted->request, in.header.bytes);
  in = {};
}

void TcpMesh::close_peer(Peer& peer, std::string_view why) {
  peer.closed = true;
  peer.why_closed = why;
  const auto fail = [&](Request request) { slots_[request].state = State::Failed; };
  for (const Posted& posted : peer.posted) fail(posted.request);
  for (const Outgoing& message : peer.outgoing)
    if (message.request) fail(*message.request);
  if (peer.incoming.posted) fail(peer.incoming.posted->request);
  std::erase_if(peer.unexpected, [](const auto& message) { return !message->complete; });
  peer.incoming = {};
  peer.posted.clear();
  peer.outgoing.clear();
}

// ---------------------------------------------------------------- channel

namespace {

class TcpChannel final : public Channel {
 public:
  TcpChannel(std::shared_ptr<TcpMesh> mesh, std::uint64_t group, std::vector<int> world_ranks)
      : mesh_(std::move(mesh)), group_(group), world_ranks_(std::move(world_ranks)) {}

  Request start_send(int peer, int tag, const void* data, std::int64_t bytes,
                     const CallName& /*call*/) override {
    return mesh_->send(world_rank(peer), {group_, tag}, data, bytes);
  }
  Request start_recv(int peer, int tag, void* data, std::int64_t bytes,
                     const CallName& /*call*/) override {
    return mesh_->recv(world_rank(peer), {group_, tag}, data, bytes);
  }
  std::optional<std::int64_t> test(Request& request, std::optional<int> peer,
                                   const CallName& call) override {
    const TcpMesh::Outcome outcome = mesh_->test(request);
    if (outcome.failed) throw CommError(call.operation, call.group, peer, *outcome.failed);
    return outcome.bytes;
  }
  void abandon(Request request, bool /*is_recv*/) noexcept override { mesh_->abandon(request); }

  std::unique_ptr<Channel> create_group(std::span<const int> ranks,
                                        const std::string& /*label*/) override {
    // All members of this group call it at once, so that they count alike; the groups of one call
    // share a number, for no two of them share a pair of ranks.
    const std::uint64_t number = ++children_;
    std::vector<int> members;
    bool member = false;
    for (const int rank : ranks) {
      members.push_back(world_rank(rank));
      member = member || members.back() == mesh_->rank();
    }
    if (!member) return nullptr;
    constexpr std::uint64_t kMostChildren = 1 << 20;
    return std::make_unique<TcpChannel>(mesh_, group_ * kMostChildren + number, std::move(members));
  }

 private:
  int world_rank(int peer) const { return world_ranks_[at(peer)]; }

  std::shared_ptr<TcpMesh> mesh_;
  std::uint64_t group_;
  std::uint64_t children_ = 0;
  std::vector<int> world_ranks_;
};

}  // namespace

std::unique_ptr<Channel> make_tcp_channel(std::shared_ptr<TcpMesh> mesh) {
  std::vector<int> ranks(static_cast<std::size_t>(mesh->size()));
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
  const std::uint64_t group = mesh->new_group();
  return std::make_unique<TcpChannel>(std::move(mesh), group, std::move(ranks));
}

}  // namespace meshplan::runtime
