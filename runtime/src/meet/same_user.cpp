#include "meet/same_user.hpp"

#include <array>
#include <fmt/format.h>
#include <sys/socket.h>

#include "core/error.hpp"
#include "os/local_socket.hpp"

namespace meshplan::runtime {
SecretForSameUser::SecretForSameUser(const std::string& name, const Secret& secret)
    : listener_(listen_locally(name)), secret_(secret) {}

void SecretForSameUser::answer() const {
  while (const auto peer = accept_own_user(listener_.get())) {
    const Socket asker(peer->socket);
    ::send(asker.get(), secret_.bytes().data(), secret_.bytes().size(), MSG_NOSIGNAL);
  }
}

Secret secret_of_same_user(const std::string& name, const Deadline& deadline) {
  const Socket giver(connect_locally(name));
  std::array<std::byte, 32> bytes{};
  if (!read_all(giver, bytes, deadline))
    throw IoError(fmt::format("the local socket {} gives no secret", name));
  return Secret::from_bytes(bytes);
}

}  // namespace meshplan::runtime
