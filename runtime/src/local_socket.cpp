#include "local_socket.hpp"

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

}  // namespace

int listen_for_lifelines(const std::string& name) {
  constexpr int kBacklog = 4096;
  const Address address = abstract_address(name);
  const int made = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  return made_or_throw(
      made, ::bind(made, address.get(), address.length) == 0 && ::listen(made, kBacklog) == 0,
      "listen on", name);
}

int connect_lifeline(const std::string& name) {
  const Address address = abstract_address(name);
  const int made = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  return made_or_throw(made, ::connect(made, address.get(), address.length) == 0, "connect to",
                       name);
}

int listen_for_reports(const std::string& name) {
  const Address address = abstract_address(name);
  const int made = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  return made_or_throw(made, ::bind(made, address.get(), address.length) == 0, "listen on", name);
}

bool send_report(const std::string& name, const std::string& text) {
  const Address address = abstract_address(name);
  const int made = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (made < 0) return false;
  const auto sent =
      ::sendto(made, text.data(), text.size(), MSG_NOSIGNAL, address.get(), address.length);
  ::close(made);
  return sent == static_cast<ssize_t>(text.size());
}

}  // namespace meshplan::runtime
