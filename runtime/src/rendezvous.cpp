#include "runtime/rendezvous.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <span>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

using Clock = std::chrono::steady_clock;

using Payloads = std::vector<std::vector<std::byte>>;

constexpr std::int64_t kMostPayload = 64 << 10;
constexpr std::uint64_t kMagic = 0x6d657368706c616eULL;  // "meshplan": not some other program

/// The first words of a rank, and rank 0's answer.
struct Hello {
  std::uint64_t magic = kMagic;
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  std::int64_t bytes = 0;  // of the payload that follows
};
struct Answer {
  std::uint64_t magic = kMagic;
  std::int64_t bytes = 0;  // that follow: all payloads, or a message if `refused`
  std::int64_t refused = 0;
};

class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

class Deadline {
 public:
  explicit Deadline(Seconds timeout)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(timeout.value))) {}
  int left_ms() const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
  }
  bool passed() const { return left_ms() == 0; }

 private:
  Clock::time_point end_;
};

/// False if the peer closes, fails or takes too long.
bool read_all(int socket, void* data, std::size_t bytes, const Deadline& deadline) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    pollfd ready{socket, POLLIN, 0};
    if (::poll(&ready, 1, deadline.left_ms()) <= 0) return false;
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int socket, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

/// Addresses of a name; freed with the result.
using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
Addresses resolve(const Rendezvous& place, bool to_listen) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = to_listen ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(to_listen ? nullptr : place.address.c_str(),
                                  std::to_string(place.port).c_str(), &hints, &found);
  if (error != 0)
    throw IoError(fmt::format("MASTER_ADDR '{}': {}", place.address, ::gai_strerror(error)));
  return {found, &::freeaddrinfo};
}

Socket listen_on_port(const Rendezvous& place) {
  const Addresses addresses = resolve(place, true);
  int error = 0;
  for (const int family : {AF_INET6, AF_INET})  // a socket of IPv6 hears IPv4, too
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
      if (one->ai_family != family) continue;
      Socket socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
      if (socket.get() < 0) continue;
      const int yes = 1;  // a run that has just ended must not block the next one
      const int no = 0;
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      if (family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
      if (::bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0 &&
          ::listen(socket.get(), SOMAXCONN) == 0)
        return socket;
      error = errno;
    }
  throw IoError(fmt::format("rank 0 cannot listen on MASTER_PORT {}: {}; choose another port",
                            place.port, std::strerror(error)));
}

void refuse(int socket, const std::string& why) {
  const Answer answer{.bytes = std::ssize(why), .refused = 1};
  if (write_all(socket, &answer, sizeof answer)) write_all(socket, why.data(), why.size());
}

std::string missing_ranks(const std::vector<Socket>& peers) {
  std::vector<std::size_t> missing;
  for (std::size_t rank = 1; rank < peers.size(); ++rank)
    if (peers[rank].get() < 0) missing.push_back(rank);
  return fmt::format("rank{} {}", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
}

/// What is wrong with a rank that has come; empty = nothing.
std::string objection(const Hello& hello, const Rendezvous& place,
                      const std::vector<Socket>& peers) {
  if (hello.world_size != place.world_size)
    return fmt::format("rank {} was started with WORLD_SIZE {}, rank 0 with {}", hello.rank,
                       hello.world_size, place.world_size);
  if (hello.rank < 1 || hello.rank >= place.world_size)
    return fmt::format("a process came as rank {} of {}", hello.rank, place.world_size);
  if (peers[static_cast<std::size_t>(hello.rank)].get() >= 0)
    return fmt::format("two processes were started as RANK {}", hello.rank);
  return "";
}

/// Each with its size before it.
std::vector<std::byte> joined(const Payloads& payloads) {
  std::vector<std::byte> bytes;
  for (const std::vector<std::byte>& one : payloads) {
    const std::int64_t size = std::ssize(one);
    const auto* begin = reinterpret_cast<const std::byte*>(&size);
    bytes.insert(bytes.end(), begin, begin + sizeof size);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return bytes;
}

/// Empty where `bytes` are not what joined() made of so many.
Payloads separated(std::span<const std::byte> bytes, int count) {
  Payloads payloads;
  for (int i = 0; i < count; ++i) {
    std::int64_t size = 0;
    if (bytes.size() < sizeof size) return {};
    std::memcpy(&size, bytes.data(), sizeof size);
    bytes = bytes.subspan(sizeof size);
    if (size < 0 || size > std::ssize(bytes)) return {};
    const auto part = bytes.first(static_cast<std::size_t>(size));
    payloads.emplace_back(part.begin(), part.end());
    bytes = bytes.subspan(part.size());
  }
  return payloads;
}

/// A rank's first words, and its payload.
struct Newcomer {
  Socket socket;
  Hello hello;
  std::vector<std::byte> payload;
};

/// Absent where a stranger calls, which may not hold up the others for long.
std::optional<Newcomer> hear(const Socket& listener, Seconds timeout) {
  Newcomer one{Socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)), {}, {}};
  const Deadline patience(Seconds{std::min(timeout.value, 5.0)});
  if (one.socket.get() < 0 || !read_all(one.socket.get(), &one.hello, sizeof one.hello, patience) ||
      one.hello.magic != kMagic || one.hello.bytes < 0 || one.hello.bytes > kMostPayload)
    return std::nullopt;
  one.payload.resize(static_cast<std::size_t>(one.hello.bytes));
  if (!read_all(one.socket.get(), one.payload.data(), one.payload.size(), patience))
    return std::nullopt;
  return one;
}

Payloads serve(const Rendezvous& place, const std::vector<std::byte>& payload, Seconds timeout) {
  const Socket listener = listen_on_port(place);
  const Deadline deadline(timeout);
  std::vector<Socket> peers(static_cast<std::size_t>(place.world_size));
  Payloads payloads(peers.size());
  payloads.front() = payload;
  for (int come = 1; come < place.world_size;) {
    pollfd ready{listener.get(), POLLIN, 0};
    if (::poll(&ready, 1, deadline.left_ms()) <= 0 && deadline.passed())
      throw IoError(fmt::format("{} of {} did not come to rank 0 at port {} within {} s",
                                missing_ranks(peers), place.world_size, place.port, timeout.value));
    std::optional<Newcomer> one = hear(listener, timeout);
    if (!one) continue;
    const std::string why = objection(one->hello, place, peers);
    if (!why.empty()) {
      refuse(one->socket.get(), why);
      for (const Socket& other : peers)
        if (other.get() >= 0) refuse(other.get(), why);
      throw ConfigError(why);
    }
    const auto rank = static_cast<std::size_t>(one->hello.rank);
    peers[rank] = std::move(one->socket);
    payloads[rank] = std::move(one->payload);
    ++come;
  }
  const std::vector<std::byte> all = joined(payloads);
  const Answer answer{.bytes = std::ssize(all)};
  for (std::size_t rank = 1; rank < peers.size(); ++rank)
    if (!write_all(peers[rank].get(), &answer, sizeof answer) ||
        !write_all(peers[rank].get(), all.data(), all.size()))
      throw IoError(fmt::format("rank {} went away while ranks were meeting", rank));
  return payloads;
}

Socket connect_to_rank_0(const Rendezvous& place, const Deadline& deadline, Seconds timeout) {
  const Addresses addresses = resolve(place, false);
  int error = 0;
  do {
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
      Socket socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
      if (socket.get() >= 0 && ::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0)
        return socket;
      error = errno;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // rank 0 may start later
  } while (!deadline.passed());
  throw IoError(fmt::format("rank {} could not reach rank 0 at {}:{} within {} s: {}", place.rank,
                            place.address, place.port, timeout.value, std::strerror(error)));
}

Payloads ask(const Rendezvous& place, const std::vector<std::byte>& own, Seconds timeout) {
  const Deadline deadline(timeout);
  const Socket socket = connect_to_rank_0(place, deadline, timeout);
  const Hello hello{.rank = place.rank, .world_size = place.world_size, .bytes = std::ssize(own)};
  Answer answer;
  if (!write_all(socket.get(), &hello, sizeof hello) ||
      !write_all(socket.get(), own.data(), own.size()) ||
      !read_all(socket.get(), &answer, sizeof answer, deadline))
    throw IoError(fmt::format(
        "rank {} reached rank 0 at {}:{}, but not all ranks came within {} s, or rank 0 ended",
        place.rank, place.address, place.port, timeout.value));
  const std::int64_t kMost = place.world_size * (kMostPayload + 8);
  if (answer.magic != kMagic || answer.bytes < 0 || answer.bytes > kMost)
    throw IoError(
        fmt::format("what answers at {}:{} is not rank 0 of this job", place.address, place.port));
  std::vector<std::byte> payload(static_cast<std::size_t>(answer.bytes));
  if (!read_all(socket.get(), payload.data(), payload.size(), deadline))
    throw IoError(fmt::format("rank 0 at {}:{} stopped talking", place.address, place.port));
  if (answer.refused != 0)
    throw ConfigError(std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
  Payloads payloads = separated(payload, place.world_size);
  if (payloads.empty())
    throw IoError(
        fmt::format("what answers at {}:{} is not rank 0 of this job", place.address, place.port));
  return payloads;
}

int number_of(const EnvironmentLookup& environment, const char* name, int least, int most) {
  const char* text = environment(name);
  if (text == nullptr)
    throw ConfigError(fmt::format(
        "{} is not set; ranks without mpiexec need RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
        "MASTER_PORT, as torchrun sets them",
        name));
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least || value > most)
    throw ConfigError(
        fmt::format("{}='{}': must be a number from {} to {}", name, text, least, most));
  return value;
}

}  // namespace

std::optional<Rendezvous> read_rendezvous(const EnvironmentLookup& environment) {
  if (environment("RANK") == nullptr && environment("WORLD_SIZE") == nullptr) return std::nullopt;
  constexpr int kMostRanks = 1 << 20;
  Rendezvous place;
  place.world_size = number_of(environment, "WORLD_SIZE", 1, kMostRanks);
  place.rank = number_of(environment, "RANK", 0, place.world_size - 1);
  place.local_rank = number_of(environment, "LOCAL_RANK", 0, place.world_size - 1);
  place.port = number_of(environment, "MASTER_PORT", 1, 65535);
  const char* address = environment("MASTER_ADDR");
  if (address == nullptr || *address == '\0')
    throw ConfigError("MASTER_ADDR is not set: the host name of rank 0");
  place.address = address;
  return place;
}

std::vector<std::vector<std::byte>> exchange(const Rendezvous& place,
                                             const std::vector<std::byte>& payload,
                                             Seconds timeout) {
  require_invariant(std::ssize(payload) <= kMostPayload, "a rank's payload is small");
  return place.rank == 0 ? serve(place, payload, timeout) : ask(place, payload, timeout);
}

}  // namespace meshplan::runtime
