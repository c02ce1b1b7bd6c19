#include "same_user.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/error.hpp"
#include "local_socket.hpp"

namespace meshplan::runtime {
namespace {

bool is_same_user(const Socket& socket) {
  ucred other{};
  socklen_t length = sizeof other;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 &&
         other.uid == ::geteuid();
}

}  // namespace

SecretForSameUser::SecretForSameUser(const std::string& name, const Secret& secret)
    : listener_(listen_for_lifelines(name)), secret_(secret) {
  ::fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
}

void SecretForSameUser::answer() const {
  while (true) {
    const Socket asker(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!asker.is_open()) return;
    if (is_same_user(asker))
      ::send(asker.get(), secret_.bytes().data(), secret_.bytes().size(), MSG_NOSIGNAL);
  }
}

Secret secret_of_same_user(const std::string& name, const Deadline& deadline) {
  const Socket giver(connect_lifeline(name));
  std::array<std::byte, 32> bytes{};
  if (!is_same_user(giver) || !read_all(giver, bytes, deadline))
    throw IoError(fmt::format("the local socket {} is of another user", name));
  return Secret::from_bytes(bytes);
}

}  // namespace meshplan::runtime
