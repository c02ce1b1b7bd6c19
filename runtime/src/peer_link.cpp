#include "peer_link.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

void set_nonblocking(int socket) {
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  fcntl(socket, F_SETFD, FD_CLOEXEC);
}

/// -1 unless the connection stands within `timeout_ms`.
int try_connect(const addrinfo& address, int timeout_ms) {
  const int made = ::socket(address.ai_family, SOCK_STREAM, 0);
  if (made < 0) return -1;
  set_nonblocking(made);
  if (::connect(made, address.ai_addr, address.ai_addrlen) != 0) {
    pollfd ready{made, POLLOUT, 0};
    int error = errno == EINPROGRESS ? 0 : errno;
    socklen_t length = sizeof(error);
    if (error == 0 && ::poll(&ready, 1, timeout_ms) == 1)
      getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &length);
    else
      error = ETIMEDOUT;
    if (error != 0) {
      ::close(made);
      return -1;
    }
  }
  return made;
}

}  // namespace

PeerLink::PeerLink(int socket) : socket_(socket) {
  set_nonblocking(socket_);
}

PeerLink::~PeerLink() {
  if (socket_ >= 0) ::close(socket_);
}

PeerLink::PeerLink(PeerLink&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      open_(other.open_),
      incoming_(std::move(other.incoming_)),
      outgoing_(std::move(other.outgoing_)) {}

PeerLink& PeerLink::operator=(PeerLink&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(open_, other.open_);
  std::swap(incoming_, other.incoming_);
  std::swap(outgoing_, other.outgoing_);
  return *this;
}

void PeerLink::send(const Frame& frame) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&frame);
  outgoing_.insert(outgoing_.end(), bytes, bytes + sizeof(Frame));
  flush();
}

void PeerLink::flush() {
  while (open_ && !outgoing_.empty()) {
    const auto sent = ::send(socket_, outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent > 0)
      outgoing_.erase(outgoing_.begin(), outgoing_.begin() + sent);
    else if (sent < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    else
      open_ = false;
  }
}

std::vector<Frame> PeerLink::receive() {
  flush();
  std::byte buffer[16 * sizeof(Frame)];
  while (open_) {
    const auto got = ::recv(socket_, buffer, sizeof(buffer), 0);
    if (got > 0)
      incoming_.insert(incoming_.end(), buffer, buffer + got);
    else if (got < 0 && errno == EINTR)
      continue;
    else if (got < 0 && errno == EAGAIN)
      break;
    else
      open_ = false;
  }
  std::vector<Frame> frames(incoming_.size() / sizeof(Frame));
  if (!frames.empty()) {
    const std::size_t whole = frames.size() * sizeof(Frame);
    std::memcpy(static_cast<void*>(frames.data()), incoming_.data(), whole);
    incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(whole));
  }
  for (Frame& frame : frames) frame.text[sizeof(frame.text) - 1] = '\0';
  return frames;
}

int listen_anywhere(int& port) {
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof(address);
  if (made < 0 || ::bind(made, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(made, 1024) != 0 ||
      ::getsockname(made, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw IoError(
        fmt::format("cannot listen for the guardians of other machines: {}", std::strerror(errno)));
  set_nonblocking(made);
  port = ntohs(address.sin_port);
  return made;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  std::string loopback;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return addresses;
  for (const ifaddrs* one = interfaces; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &ipv4->sin_addr, text, sizeof(text));
    if (std::string_view(text).starts_with("127."))
      loopback = text;
    else
      addresses.emplace_back(text);
  }
  freeifaddrs(interfaces);
  if (!loopback.empty()) addresses.push_back(loopback);
  return addresses;
}

int connect_to_any(const std::vector<std::string>& addresses, int port) {
  for (const std::string& name : addresses) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) continue;
    const int made = try_connect(*found, 2000);
    freeaddrinfo(found);
    if (made >= 0) return made;
  }
  return -1;
}

int accept_one(int listener) {
  return ::accept(listener, nullptr, nullptr);
}

}  // namespace meshplan::runtime
