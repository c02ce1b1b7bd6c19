#include "runtime/tcp_session.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"
#include "peer_link.hpp"
#include "rank_card.hpp"
#include "tcp_mesh.hpp"

namespace meshplan::runtime {
namespace {

using Clock = std::chrono::steady_clock;

/// What a rank gives to all others when they meet.
struct Contact {
  RankCard card;
  std::uint64_t token = 0;  // rank 0's is the job's: a stranger does not know it
  std::int32_t port = 0;
  char addresses[512] = {};  // with spaces between
};
static_assert(std::is_trivially_copyable_v<Contact>);

/// Said on each connection, by the rank that has opened it.
struct Greeting {
  std::uint64_t token = 0;
  std::int32_t rank = 0;
  std::int32_t unused = 0;
};

std::vector<std::byte> bytes_of(const Contact& contact) {
  std::vector<std::byte> bytes(sizeof contact);
  std::memcpy(bytes.data(), &contact, sizeof contact);
  return bytes;
}

Contact own_contact(int port) {
  Contact contact{.card = own_card(), .port = port};
  contact.token = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()) ^
                  (static_cast<std::uint64_t>(::getpid()) << 40);
  const std::string text = fmt::format("{}", fmt::join(own_addresses(), " "));
  std::strncpy(contact.addresses, text.c_str(), sizeof contact.addresses - 1);
  return contact;
}

std::vector<Contact> meet(const Rendezvous& place, int port, Seconds timeout) {
  std::vector<Contact> contacts;
  for (const std::vector<std::byte>& bytes :
       exchange(place, bytes_of(own_contact(port)), timeout)) {
    if (bytes.size() != sizeof(Contact))
      throw ConfigError("ranks of different versions of this program meet");
    std::memcpy(static_cast<void*>(&contacts.emplace_back()), bytes.data(), sizeof(Contact));
  }
  return contacts;
}

std::vector<std::string> words_of(const char* text) {
  std::vector<std::string> words;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto end = std::min(rest.find(' '), rest.size());
    words.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return words;
}

/// Whole, or false: the sockets do not block, so it waits for each part.
bool read_greeting(int socket, Greeting& greeting) {
  auto* at = reinterpret_cast<char*>(&greeting);
  std::size_t left = sizeof greeting;
  while (left > 0) {
    constexpr int kPatienceMs = 5000;  // a stranger may not hold up the others for long
    pollfd ready{socket, POLLIN, 0};
    if (::poll(&ready, 1, kPatienceMs) <= 0) return false;
    const ssize_t got = ::recv(socket, at, left, 0);
    if (got <= 0) return false;
    at += got;
    left -= static_cast<std::size_t>(got);
  }
  return true;
}

void prepare(int socket) {
  const int yes = 1;  // a small message must not wait for the next one
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/// Sockets that are closed unless they are handed on.
struct Sockets {
  explicit Sockets(std::size_t count) : of_rank(count, -1) {}
  ~Sockets() {
    for (const int socket : of_rank)
      if (socket >= 0) ::close(socket);
    if (listener >= 0) ::close(listener);
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  std::vector<int> of_rank;
  int listener = -1;
};

void call_lower_ranks(int rank, const std::vector<Contact>& contacts, Sockets& sockets) {
  for (int peer = 0; peer < rank; ++peer) {
    const Contact& contact = contacts[static_cast<std::size_t>(peer)];
    const int socket = connect_to_any(words_of(contact.addresses), contact.port);
    sockets.of_rank[static_cast<std::size_t>(peer)] = socket;
    const Greeting greeting{.token = contacts.front().token, .rank = rank};
    if (socket < 0 || ::send(socket, &greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting)
      throw IoError(fmt::format(
          "rank {} cannot reach rank {} on {}, which listens on port {} of {}: do firewalls let "
          "all ports through between the machines?",
          rank, peer, contact.card.host, contact.port, contact.addresses));
    prepare(socket);
  }
}

void hear_higher_ranks(int rank, const std::vector<Contact>& contacts, Sockets& sockets,
                       Seconds timeout) {
  const auto end = Clock::now() + std::chrono::duration<double>(timeout.value);
  for (std::size_t left = contacts.size() - 1 - static_cast<std::size_t>(rank); left > 0;) {
    if (Clock::now() > end)
      throw IoError(fmt::format("{} rank{} did not connect to rank {} within {} s", left,
                                left == 1 ? "" : "s", rank, timeout.value));
    pollfd ready{sockets.listener, POLLIN, 0};
    if (::poll(&ready, 1, 100) <= 0) continue;
    const int socket = accept_one(sockets.listener);
    Greeting greeting;
    const bool friendly = socket >= 0 && read_greeting(socket, greeting) &&
                          greeting.token == contacts.front().token && greeting.rank > rank &&
                          greeting.rank < static_cast<int>(contacts.size());
    if (!friendly) {
      if (socket >= 0) ::close(socket);
      continue;
    }
    prepare(socket);
    sockets.of_rank[static_cast<std::size_t>(greeting.rank)] = socket;
    --left;
  }
}

}  // namespace

TcpSession::TcpSession(const Rendezvous& place, Seconds timeout) {
  Sockets sockets(static_cast<std::size_t>(place.world_size));
  int port = 0;
  sockets.listener = listen_anywhere(port);
  const std::vector<Contact> contacts = meet(place, port, timeout);
  std::vector<RankCard> cards;
  for (const Contact& contact : contacts) cards.push_back(contact.card);
  layout_ = layout_of(place.rank, cards);
  call_lower_ranks(place.rank, contacts, sockets);
  hear_higher_ranks(place.rank, contacts, sockets, timeout);
  sharpen_naps(layout_);
  mesh_ = std::make_shared<TcpMesh>(place.rank, std::exchange(sockets.of_rank, {}));
}

TcpSession::~TcpSession() = default;

void TcpSession::abort(int exit_code) const {
  std::_Exit(exit_code);
}

std::unique_ptr<Channel> TcpSession::make_channel() const {
  return make_tcp_channel(mesh_);
}

}  // namespace meshplan::runtime
