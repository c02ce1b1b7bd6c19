// TCP sockets as ranks and guardians use them: nothing blocks but what takes a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/units.hpp"

namespace meshplan::runtime {

/// Closes with its owner.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();
  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

class Deadline {
 public:
  explicit Deadline(Seconds timeout);
  /// The earlier of this and `timeout` from now.
  Deadline within(Seconds timeout) const;
  Seconds left() const;
  Seconds timeout() const { return timeout_; }  // that it was made with
  /// For poll(): rounded up, so that it is 0 only when the deadline has passed.
  int left_ms() const;
  bool passed() const { return left_ms() == 0; }

 private:
  Seconds timeout_;
  std::chrono::steady_clock::time_point end_;
};

/// False if the peer closes, fails or takes too long.
bool read_all(const Socket& socket, std::span<std::byte> bytes, const Deadline& deadline);
bool write_all(const Socket& socket, std::span<const std::byte> bytes, const Deadline& deadline);

/// A listener at a numeric address or a name, which must be this machine's; at port 0 it gets a
/// free one. An empty address is every one of this machine's. If not open: errno says why,
/// EADDRINUSE where the port is taken, EADDRNOTAVAIL where this machine has no such address.
Socket try_listen(const std::string& address, int port);
/// A connected socket that does not wait to send small messages; not open if none of the addresses
/// answers, errno says why not. Each has 2 s, and all have until the deadline.
Socket connect_to_any(const std::vector<std::string>& addresses, int port,
                      const Deadline& deadline);
/// The next connection of a listener; not open if there is none now.
Socket accept_one(int listener);

/// Numeric, of this end and of the other end of a connection; "0.0.0.0" or "::" of a listener at
/// every address.
std::string near_address(const Socket& socket);
std::string far_address(const Socket& socket);
int near_port(const Socket& socket);
/// This machine's IPv4 addresses, loopback last.
std::vector<std::string> own_addresses();
/// Only this machine has it: 127.0.0.0/8 and ::1.
bool is_loopback(const std::string& numeric_address);
/// Every address of a name, numeric. @throws IoError if it is unknown, which says `what` it is
std::vector<std::string> addresses_of(std::string_view what, const std::string& name);

}  // namespace meshplan::runtime
