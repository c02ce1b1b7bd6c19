// For tests of ranks that meet over TCP: each is a process of its own. Loopback only.
#pragma once

#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <netinet/in.h>
#include <set>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "core/error.hpp"
#include "meet/meeting.hpp"

namespace meshplan::runtime {

/// A port of 127.0.0.1 that nobody listens on, and the socket that keeps it if asked to.
struct Port {
  explicit Port(bool keep) {
    Socket socket = try_listen("127.0.0.1", 0);
    REQUIRE(socket.is_open());
    number = near_port(socket);
    if (keep) kept = std::move(socket);
  }
  Socket kept;
  int number = 0;
};

inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

/// What a rank says at its end, or the error that it met: run in a process of its own.
class RankProcess {
 public:
  explicit RankProcess(const std::function<std::string()>& work) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::close(ends[0]);
      const std::string result = result_of(work);
      [[maybe_unused]] const auto written = ::write(ends[1], result.data(), result.size());
      ::_exit(0);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  /// Meets the others with a payload, and says what it got.
  RankProcess(const Rendezvous& place, const std::string& payload, double timeout_s)
      : RankProcess([=] {
          std::string result = "got";
          const auto own = [&](const std::string& /*address*/) { return bytes_of(payload); };
          for (const auto& got : meet(place, own, Deadline(Seconds{timeout_s})).payloads)
            result += " " + std::string(reinterpret_cast<const char*>(got.data()), got.size());
          return result;
        }) {}
  ~RankProcess() {
    ::close(pipe_);
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  int pid() const { return child_; }
  std::string result() const {
    std::string text;
    char part[512];
    for (ssize_t got = 0; (got = ::read(pipe_, part, sizeof part)) > 0;)
      text.append(part, static_cast<std::size_t>(got));
    return text;
  }

 private:
  static std::string result_of(const std::function<std::string()>& work) {
    try {
      return work();
    } catch (const ConfigError& error) {
      return std::string("config: ") + error.what();
    } catch (const std::exception& error) {
      return std::string("error: ") + error.what();
    }
  }

  pid_t child_ = -1;
  int pipe_ = -1;
};

inline Rendezvous place_of(int rank, int world_size, int port, const std::string& secret = "") {
  return {.rank = rank,
          .world_size = world_size,
          .local_rank = rank,
          .address = "127.0.0.1",
          .port = port,
          .local_world_size = 0,
          .secret = secret};
}

/// A connection to a port of this machine, as soon as somebody listens there.
inline Socket call(int port) {
  const Deadline deadline(Seconds{20});
  while (!deadline.passed()) {
    Socket socket = connect_to_any({"127.0.0.1"}, port, deadline);
    if (socket.is_open()) return socket;
    ::usleep(1000);
  }
  return Socket();
}

/// Addresses and ports at which a process listens, as "127.0.0.1:80"; IPv6 as its digits.
inline std::set<std::string> listening_at(int pid) {
  std::set<std::string> inodes;
  for (int file = 0; file < 256; ++file) {
    char target[64] = {};
    const std::string link = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(file);
    if (::readlink(link.c_str(), target, sizeof target - 1) > 8 &&
        std::string(target).starts_with("socket:["))
      inodes.insert(std::string(target).substr(8, std::string(target).size() - 9));
  }
  std::set<std::string> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream stream(line);
      const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
      constexpr std::size_t kLocal = 1, kState = 3, kInode = 9;
      if (words.size() <= kInode || words[kState] != "0A" || !inodes.contains(words[kInode]))
        continue;
      const auto colon = words[kLocal].find(':');
      std::string host = words[kLocal].substr(0, colon);
      if (host.size() == 8) {
        const in_addr address{static_cast<in_addr_t>(std::stoul(host, nullptr, 16))};
        host = ::inet_ntoa(address);
      }
      found.insert(host + ":" +
                   std::to_string(std::stoi(words[kLocal].substr(colon + 1), nullptr, 16)));
    }
  }
  return found;
}

}  // namespace meshplan::runtime
