#include "runtime/job/tcp_session.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <sstream>
#include <thread>
#include <type_traits>
#include <utility>

#include "comm/tcp_mesh.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "core/printable.hpp"
#include "core/words.hpp"
#include "job/rank_card.hpp"
#include "meet/handshake.hpp"
#include "meet/meeting.hpp"
#include "os/tcp_socket.hpp"

namespace meshplan::runtime {
namespace {

/// What a rank gives to all others when they meet.
struct Contact {
  RankCard card;
  Nonce nonce{};  // rank 0's is the job's
  std::int32_t port = 0;
  char addresses[512] = {};  // with spaces between
};
static_assert(std::is_trivially_copyable_v<Contact>);

std::vector<std::byte> bytes_of(const Contact& contact) {
  std::vector<std::byte> bytes(sizeof contact);
  std::memcpy(bytes.data(), &contact, sizeof contact);
  return bytes;
}

/// One rank's way to a connection with each other rank.
class Links {
 public:
  Links(const Rendezvous& place, const Deadline& deadline)
      : rank_(place.rank),
        deadline_(deadline),
        links_(static_cast<std::size_t>(place.world_size)) {}

  /// All ranks have met; afterwards cards() and connect().
  void meet(const Rendezvous& place) {
    Meeting meeting = runtime::meet(
        place, [this](const std::string& address) { return bytes_of(contact_at(address)); },
        deadline_);
    for (const std::vector<std::byte>& bytes : meeting.payloads) {
      if (bytes.size() != sizeof(Contact))
        throw ConfigError("ranks of different versions of this program meet");
      std::memcpy(static_cast<void*>(&contacts_.emplace_back()), bytes.data(), sizeof(Contact));
    }
    secret_ = meeting.secret.derived("meshplan: connections of one job", contacts_.front().nonce);
  }

  std::vector<RankCard> cards() const {
    std::vector<RankCard> cards;
    for (const Contact& contact : contacts_) cards.push_back(contact.card);
    return cards;
  }

  /// Calls the lower ranks, then hears the higher ones: each rank answers once it has called.
  std::vector<Socket> connect() {
    for (int peer = 0; peer < rank_; ++peer) links_[at(peer)] = call(peer);
    hear_higher_ranks();
    return std::move(links_);
  }

 private:
  /// @param address  the one that this rank is known by; the other ranks call there
  Contact contact_at(const std::string& address) {
    const bool everywhere = address == "0.0.0.0" || address == "::";
    listener_ = try_listen(everywhere ? "" : address, 0);
    if (!listener_.is_open())
      throw IoError(fmt::format("rank {} cannot listen at {} for the other ranks: {}", rank_,
                                address, std::strerror(errno)));
    Contact contact{.card = own_card(), .nonce = random_nonce(), .port = near_port(listener_)};
    const std::string text =
        everywhere ? fmt::format("{}", fmt::join(own_addresses(), " ")) : address;
    std::strncpy(contact.addresses, text.c_str(), sizeof contact.addresses - 1);
    return contact;
  }

  Socket call(int peer) const {
    const Contact& to = contacts_[at(peer)];
    const Identity identity{.from = rank_, .to = peer, .size = size(), .purpose = Purpose::Mesh};
    constexpr Seconds kToReach{10.0};
    constexpr auto kBeforeNext = std::chrono::milliseconds(20);
    Deadline patience = deadline_.within(kToReach);
    while (true) {
      Socket socket = connect_to_any(words_of(to.addresses), to.port, patience);
      if (socket.is_open()) {
        // It has called its own lower ranks before it answers; strangers may push in before us.
        const Call made = introduce(
            socket, [this] { return *secret_; }, identity, deadline_);
        if (made.result == Call::Result::Met) return socket;
        if (made.result != Call::Result::NoAnswer)
          throw IoError(
              fmt::format("what answers rank {} on port {} of {} is not rank {} of this job", rank_,
                          to.port, to.addresses, peer));
        patience = deadline_.within(kToReach);
      }
      if (patience.passed())
        throw IoError(fmt::format(
            "rank {} cannot reach rank {} on {}, which listens on port {} of {}: do firewalls let "
            "all ports through between the machines?",
            rank_, peer, to.card.host, to.port, to.addresses));
      std::this_thread::sleep_for(kBeforeNext);
    }
  }

  void hear_higher_ranks() {
    Door door(std::move(listener_), *secret_, Purpose::Mesh, rank_);
    std::vector<pollfd> polled;
    for (int left = size() - 1 - rank_; left > 0;) {
      if (deadline_.passed())
        throw IoError(fmt::format("{} rank{} did not connect to rank {} within {} s{}", left,
                                  left == 1 ? "" : "s", rank_, deadline_.timeout().value,
                                  door.about_strangers()));
      constexpr int kAWhileMs = 100;
      polled.clear();
      door.add_to(polled);
      ::poll(polled.data(), polled.size(), std::min(kAWhileMs, deadline_.left_ms()));
      for (Guest& guest : door.guests()) {
        const int from = guest.identity.from;
        if (from <= rank_ || from >= size() || links_[at(from)].is_open()) continue;
        links_[at(from)] = std::move(guest.socket);
        --left;
      }
    }
  }

  int size() const { return static_cast<int>(links_.size()); }

  int rank_;
  Deadline deadline_;
  std::vector<Socket> links_;  // by rank
  std::vector<Contact> contacts_;
  Socket listener_;
  std::optional<Secret> secret_;  // of connections between ranks of this job
};

}  // namespace

TcpSession::TcpSession(const Rendezvous& place, Seconds timeout) {
  if (const std::optional<std::string> warning = admission_warning(place))
    fmt::print(stderr, "meshplan: warning: {}\n", printable_line(*warning));
  Links links(place, Deadline(timeout));
  links.meet(place);
  layout_ = layout_of(place.rank, links.cards());
  std::vector<Socket> sockets = links.connect();
  sharpen_naps(layout_);
  mesh_ = std::make_shared<TcpMesh>(place.rank, std::move(sockets));
}

TcpSession::~TcpSession() = default;

void TcpSession::abort(int exit_code) const {
  std::_Exit(exit_code);
}

std::unique_ptr<Channel> TcpSession::make_channel() const {
  return make_tcp_channel(mesh_);
}

}  // namespace meshplan::runtime
