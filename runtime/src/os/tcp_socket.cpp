#include "os/tcp_socket.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNoWait = SOCK_CLOEXEC | SOCK_NONBLOCK;

Clock::duration duration_of(Seconds time) {
  constexpr double kLongest = 1e9;  // a time point must not overflow
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::clamp(time.value, 0.0, kLongest)));
}

/// Freed with the result; empty, with the error, if the name is unknown.
using Found = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
Found find(const std::string& name, int port, int flags, int& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {error == 0 ? found : nullptr, &::freeaddrinfo};
}

std::string address_text(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = {};
  if (::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
    return "an unknown address";
  const std::string text = host;
  constexpr std::string_view kMapped = "::ffff:";  // IPv4 that a socket of IPv6 has heard
  return text.starts_with(kMapped) && text.find('.') != std::string::npos
             ? text.substr(kMapped.size())
             : text;
}

/// True when `events` have come, or the peer is gone; false at the deadline.
bool await(const Socket& socket, short events, const Deadline& deadline) {
  while (true) {
    pollfd ready{socket.get(), events, 0};
    const int count = ::poll(&ready, 1, deadline.left_ms());
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
    if (deadline.passed()) return false;
  }
}

/// What a transfer that moved nothing means: wait and try again, or give up.
bool may_try_again(ssize_t moved) {
  return moved < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK);
}

Socket try_connect(const addrinfo& to, const Deadline& deadline) {
  Socket socket(::socket(to.ai_family, SOCK_STREAM | kNoWait, 0));
  if (!socket.is_open()) return socket;
  if (::connect(socket.get(), to.ai_addr, to.ai_addrlen) != 0) {
    int error = errno;
    socklen_t length = sizeof error;
    if (error == EINPROGRESS && await(socket, POLLOUT, deadline))
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    errno = error == EINPROGRESS ? ETIMEDOUT : error;
    if (error != 0) return Socket();
  }
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return socket;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Deadline::Deadline(Seconds timeout)
    : timeout_(timeout), end_(Clock::now() + duration_of(timeout)) {}

Deadline Deadline::within(Seconds timeout) const {
  Deadline earlier(timeout);
  earlier.end_ = std::min(earlier.end_, end_);
  return earlier;
}

Seconds Deadline::left() const {
  return {std::max(0.0, std::chrono::duration<double>(end_ - Clock::now()).count())};
}

int Deadline::left_ms() const {
  constexpr double kLongestMs = 3'600'000;
  return static_cast<int>(std::ceil(std::min(left().value * 1e3, kLongestMs)));
}

bool read_all(const Socket& socket, std::span<std::byte> bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    else if (!may_try_again(got) || !await(socket, POLLIN, deadline))
      return false;
  }
  return true;
}

bool write_all(const Socket& socket, std::span<const std::byte> bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t put =
        ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    else if (!may_try_again(put) || !await(socket, POLLOUT, deadline))
      return false;
  }
  return true;
}

Socket try_listen(const std::string& address, int port) {
  int error = 0;
  const Found found = find(address.empty() ? "0.0.0.0" : address, port, AI_PASSIVE, error);
  errno = EADDRNOTAVAIL;
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, SOCK_STREAM | kNoWait, one->ai_protocol));
    const int yes = 1;  // a run that has just ended must not block the next one
    if (socket.is_open() &&
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        ::bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0)
      return socket;
    if (errno == EADDRINUSE) break;  // others would call there first, and meet somebody else
  }
  return Socket();
}

Socket connect_to_any(const std::vector<std::string>& addresses, int port,
                      const Deadline& deadline) {
  constexpr Seconds kOfOne{2.0};
  errno = EADDRNOTAVAIL;
  for (const std::string& name : addresses) {
    int error = 0;
    const Found found = find(name, port, 0, error);
    for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
      Socket made = try_connect(*one, deadline.within(kOfOne));
      if (made.is_open()) return made;
    }
  }
  return Socket();
}

Socket accept_one(int listener) {
  Socket socket(::accept4(listener, nullptr, nullptr, kNoWait));
  const int yes = 1;
  if (socket.is_open()) ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return socket;
}

std::string near_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return address_text(reinterpret_cast<const sockaddr*>(&address), length);
}

std::string far_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return address_text(reinterpret_cast<const sockaddr*>(&address), length);
}

int near_port(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) return addresses;
  for (const ifaddrs* one = interfaces; one != nullptr; one = one->ifa_next)
    if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET)
      addresses.push_back(address_text(one->ifa_addr, sizeof(sockaddr_in)));
  ::freeifaddrs(interfaces);
  std::ranges::stable_partition(addresses, [](const auto& text) { return !is_loopback(text); });
  return addresses;
}

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1";
}

std::vector<std::string> addresses_of(std::string_view what, const std::string& name) {
  int error = 0;
  const Found found = find(name, 0, 0, error);
  if (error != 0) throw IoError(fmt::format("{} '{}': {}", what, name, ::gai_strerror(error)));
  std::vector<std::string> addresses;
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next)
    addresses.push_back(address_text(one->ai_addr, one->ai_addrlen));
  return addresses;
}

}  // namespace meshplan::runtime
