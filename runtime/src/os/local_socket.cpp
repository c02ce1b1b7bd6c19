#include "os/local_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

struct Address {
  sockaddr_un value{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }
};

Address abstract_address(const std::string& name) {
  Address address;
  address.value.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.value.sun_path) - 1);
  std::memcpy(address.value.sun_path + 1, name.data(), length);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

int made_or_throw(int socket, bool ok, std::string_view what, const std::string& name) {
  if (socket >= 0 && ok) return socket;
  const std::string reason = std::strerror(errno);
  if (socket >= 0) ::close(socket);
  throw IoError(fmt::format("cannot {} the local socket {}: {}", what, name, reason));
}

std::optional<ucred> peer_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return std::nullopt;
  return credentials;
}

bool is_own_user(const std::optional<ucred>& peer) {
  return peer && peer->uid == ::geteuid();
}

}  // namespace

int listen_locally(const std::string& name) {
  constexpr int kBacklog = 4096;
  const Address address = abstract_address(name);
  const int made = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  return made_or_throw(
      made, ::bind(made, address.get(), address.length) == 0 && ::listen(made, kBacklog) == 0,
      "listen on", name);
}

int connect_locally(const std::string& name) {
  const Address address = abstract_address(name);
  const int made = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  made_or_throw(made, ::connect(made, address.get(), address.length) == 0, "connect to", name);
  if (is_own_user(peer_of(made))) return made;
  ::close(made);
  throw IoError(fmt::format("the local socket {} belongs to another user", name));
}

std::optional<LocalPeer> accept_own_user(int listener) {
  while (true) {
    const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (socket < 0) return std::nullopt;
    const std::optional<ucred> peer = peer_of(socket);
    if (is_own_user(peer)) return LocalPeer{socket, peer->pid};
    ::close(socket);
  }
}

}  // namespace meshplan::runtime
