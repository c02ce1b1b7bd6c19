// Messages between two ranks over one connection, one end of which is the test's.
#include "comm/tcp_mesh.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;

struct Header {
  std::uint64_t group = 1;
  std::int64_t bytes = 0;
  std::int32_t tag = 7;
  std::int32_t unused = 0;
};
const TcpMesh::Label kLabel{1, 7};

/// Rank 0 of two; the test speaks as rank 1.
struct Pair {
  Pair() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    std::vector<Socket> sockets(2);
    sockets[1] = Socket(ends[0]);
    peer = Socket(ends[1]);
    mesh = std::make_unique<TcpMesh>(0, std::move(sockets));
  }
  ~Pair() { peer = Socket(); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  void say(const void* data, std::size_t bytes) const {
    REQUIRE(::send(peer.get(), data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
  }
  void announce(std::int64_t bytes) const {
    const Header header{.bytes = bytes};
    say(&header, sizeof header);
  }
  std::unique_ptr<TcpMesh> mesh;
  Socket peer;
};

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t virtual_pages = 0, pages = 0;
  file >> virtual_pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("A message that no memory can hold ends the connection by both ranks' names",
          "[runtime][tcp_mesh]") {
  for (const std::int64_t bytes : {std::int64_t{1} << 62, std::int64_t{-1}})
    for (const bool posted : {false, true}) {
      Pair pair;
      std::int32_t data = 0;
      if (!posted) pair.announce(bytes);
      const auto request = pair.mesh->recv(1, kLabel, &data, sizeof data);
      if (posted) pair.announce(bytes);
      TcpMesh::Outcome outcome;
      for (int i = 0; i < 100 && !outcome.failed && !outcome.bytes; ++i)
        outcome = pair.mesh->test(request);
      CHECK_THAT(
          outcome.failed.value_or("nothing"),
          Contains("rank 1 announced a message of " + std::to_string(bytes) + " bytes to rank 0"));
      const auto next = pair.mesh->send(1, kLabel, &data, sizeof data);
      CHECK(pair.mesh->test(next).failed.has_value());
    }
}

TEST_CASE("A message that is longer than its receiver expects is said at its header",
          "[runtime][tcp_mesh]") {
  for (const bool posted : {false, true}) {
    Pair pair;
    std::int32_t data = 0, next = 0;
    constexpr std::int64_t kLong = 64 << 10;
    if (!posted) {
      pair.announce(kLong);
      const std::vector<char> begin(100, 'x');
      pair.say(begin.data(), begin.size());
      const auto other = pair.mesh->recv(1, {2, 9}, &next, sizeof next);
      CHECK_FALSE(pair.mesh->test(other).bytes);  // reads what has come
      pair.mesh->abandon(other);
    }
    const auto request = pair.mesh->recv(1, kLabel, &data, sizeof data);
    if (posted) pair.announce(kLong);
    CHECK(pair.mesh->test(request).bytes == kLong);
    // What follows on the connection is still understood.
    const std::vector<char> rest(static_cast<std::size_t>(kLong) - (posted ? 0 : 100), 'x');
    pair.say(rest.data(), rest.size());
    pair.announce(sizeof next);
    const std::int32_t sent = 5;
    pair.say(&sent, sizeof sent);
    const auto after = pair.mesh->recv(1, kLabel, &next, sizeof next);
    TcpMesh::Outcome outcome;
    for (int i = 0; i < 1000 && !outcome.bytes; ++i) outcome = pair.mesh->test(after);
    CHECK(outcome.bytes == std::int64_t{sizeof next});
    CHECK(next == 5);
  }
}

TEST_CASE("An announcement takes no memory before its bytes come", "[runtime][tcp_mesh]") {
  Pair pair;
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t much = pages * page / 2;  // a machine of this size might send it
  const std::int64_t before = resident_bytes();
  pair.announce(much);
  std::int32_t data = 0;
  const auto other = pair.mesh->recv(1, {2, 9}, &data, sizeof data);
  for (int i = 0; i < 10; ++i) CHECK_FALSE(pair.mesh->test(other).bytes);
  CHECK(resident_bytes() - before < std::int64_t{64} << 20);
  pair.mesh->abandon(other);
}

TEST_CASE("A message that comes before it is wanted is kept whole", "[runtime][tcp_mesh]") {
  Pair pair;
  constexpr std::size_t kCount = 3 << 20;
  std::vector<char> sent(kCount);
  for (std::size_t i = 0; i < kCount; ++i) sent[i] = static_cast<char>(i * 31 % 251);
  pair.announce(kCount);
  std::int32_t unrelated = 0;
  const auto other = pair.mesh->recv(1, {2, 9}, &unrelated, sizeof unrelated);
  const bool wanted_early = GENERATE(false, true);
  std::vector<char> got(kCount);
  std::optional<TcpMesh::Request> request;
  for (std::size_t at = 0; at < kCount; at += 4096) {
    pair.say(sent.data() + at, 4096);
    CHECK_FALSE(pair.mesh->test(other).bytes);
    if (wanted_early && at > kCount / 2 && !request)
      request = pair.mesh->recv(1, kLabel, got.data(), kCount);
  }
  if (!request) request = pair.mesh->recv(1, kLabel, got.data(), kCount);
  CHECK(pair.mesh->test(*request).bytes == std::int64_t{kCount});
  CHECK(got == sent);
  pair.mesh->abandon(other);
}

}  // namespace meshplan::runtime
