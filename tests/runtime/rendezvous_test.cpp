// Ranks that meet over TCP: each is a process of its own.
#include "runtime/rendezvous.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <map>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;

/// A port that nobody listens on, and the socket that keeps it if asked to.
struct Port {
  explicit Port(bool keep) {
    socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof address;
    REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    number = ntohs(address.sin_port);
    if (keep)
      REQUIRE(::listen(socket, 1) == 0);
    else
      release();
  }
  ~Port() { release(); }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  void release() {
    if (socket >= 0) ::close(socket);
    socket = -1;
  }
  int socket = -1;
  int number = 0;
};

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

/// What a rank got, or the error that it met: run in a process of its own.
class RankProcess {
 public:
  RankProcess(const Rendezvous& place, const std::string& payload, double timeout_s) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::close(ends[0]);
      std::string result;
      try {
        result = "got";
        for (const auto& got : exchange(place, bytes_of(payload), Seconds{timeout_s}))
          result += " " + std::string(reinterpret_cast<const char*>(got.data()), got.size());
      } catch (const ConfigError& error) {
        result = std::string("config: ") + error.what();
      } catch (const std::exception& error) {
        result = std::string("error: ") + error.what();
      }
      [[maybe_unused]] const auto written = ::write(ends[1], result.data(), result.size());
      ::_exit(0);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  ~RankProcess() {
    ::close(pipe_);
    ::waitpid(child_, nullptr, 0);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  std::string result() const {
    std::string text;
    char part[512];
    for (ssize_t got = 0; (got = ::read(pipe_, part, sizeof part)) > 0;)
      text.append(part, static_cast<std::size_t>(got));
    return text;
  }

 private:
  pid_t child_ = -1;
  int pipe_ = -1;
};

Rendezvous place_of(int rank, int world_size, int port) {
  return {.rank = rank,
          .world_size = world_size,
          .local_rank = rank,
          .address = "127.0.0.1",
          .port = port};
}

std::optional<Rendezvous> read(std::map<std::string, std::string> variables) {
  return read_rendezvous([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const std::map<std::string, std::string>& variables) {
  try {
    read(variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

const std::map<std::string, std::string> kComplete = {{"RANK", "3"},
                                                      {"WORLD_SIZE", "4"},
                                                      {"LOCAL_RANK", "1"},
                                                      {"MASTER_ADDR", "node-a"},
                                                      {"MASTER_PORT", "29500"}};

}  // namespace

TEST_CASE("torchrun's variables name a rank's place", "[runtime][rendezvous]") {
  CHECK(read({}) == std::nullopt);
  CHECK(read(kComplete) == Rendezvous{3, 4, 1, "node-a", 29500});
}

TEST_CASE("A variable that is missing or wrong is named", "[runtime][rendezvous]") {
  for (const auto& [name, value] : kComplete) {
    auto variables = kComplete;
    variables.erase(name);
    INFO(name);
    CHECK_THAT(error_of(variables), Contains(name + " is not set"));
  }
  const auto with = [](const char* name, const char* value) {
    auto variables = kComplete;
    variables[name] = value;
    return error_of(variables);
  };
  CHECK_THAT(with("RANK", "4"), Contains("RANK='4': must be a number from 0 to 3"));
  CHECK_THAT(with("RANK", "two"), Contains("RANK='two'"));
  CHECK_THAT(with("WORLD_SIZE", "0"), Contains("WORLD_SIZE='0'"));
  CHECK_THAT(with("MASTER_PORT", "70000"), Contains("from 1 to 65535"));
}

TEST_CASE("All ranks get what each gives, in whatever order they come", "[runtime][rendezvous]") {
  const Port port(false);
  const RankProcess three(place_of(3, 4, port.number), "d", 20);
  const RankProcess one(place_of(1, 4, port.number), "", 20);
  const RankProcess zero(place_of(0, 4, port.number), "the id", 20);
  const RankProcess two(place_of(2, 4, port.number), "ccc", 20);
  for (const RankProcess* rank : {&zero, &one, &two, &three})
    CHECK(rank->result() == "got the id  ccc d");
  const RankProcess alone(place_of(0, 1, port.number), "mine", 20);
  CHECK(alone.result() == "got mine");
}

TEST_CASE("Ranks of different jobs are told apart", "[runtime][rendezvous]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 2, port.number), "id", 20);
  const RankProcess one(place_of(1, 3, port.number), "", 20);
  const char* text = "config: rank 1 was started with WORLD_SIZE 3, rank 0 with 2";
  CHECK(one.result() == text);
  CHECK(zero.result() == text);
}

TEST_CASE("Two processes with one rank are refused, and all learn why", "[runtime][rendezvous]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 3, port.number), "id", 20);
  const RankProcess one(place_of(1, 3, port.number), "", 20);
  const RankProcess again(place_of(1, 3, port.number), "", 20);
  for (const RankProcess* rank : {&zero, &one, &again})
    CHECK(rank->result() == "config: two processes were started as RANK 1");
}

TEST_CASE("A rank that never comes is named", "[runtime][rendezvous]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 4, port.number), "id", 0.5);
  const RankProcess two(place_of(2, 4, port.number), "", 5);
  CHECK_THAT(zero.result(),
             Contains("ranks 1, 3 of 4 did not come to rank 0") && Contains("within 0.5 s"));
  CHECK_THAT(two.result(), Contains("rank 2 reached rank 0") && Contains("or rank 0 ended"));
}

TEST_CASE("A rank 0 that never comes is missed with its address", "[runtime][rendezvous]") {
  const Port port(false);
  const RankProcess one(place_of(1, 2, port.number), "", 0.3);
  CHECK_THAT(one.result(), Contains("rank 1 could not reach rank 0 at 127.0.0.1:" +
                                    std::to_string(port.number)) &&
                               Contains("refused"));
}

TEST_CASE("A port that is taken is named", "[runtime][rendezvous]") {
  const Port port(true);
  const RankProcess zero(place_of(0, 2, port.number), "id", 5);
  CHECK_THAT(zero.result(),
             Contains("cannot listen on MASTER_PORT " + std::to_string(port.number)) &&
                 Contains("choose another port"));
}

TEST_CASE("A stranger at the port does not count as a rank", "[runtime][rendezvous]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 2, port.number), "id", 20);
  const int stranger = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port.number));
  while (::connect(stranger, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    ::usleep(1000);
  const std::string words = "GET / HTTP/1.1\r\nHost: rank-0\r\n\r\n";
  CHECK(::send(stranger, words.data(), words.size(), 0) > 0);
  const RankProcess one(place_of(1, 2, port.number), "", 20);
  CHECK(one.result() == "got id ");
  CHECK(zero.result() == "got id ");
  ::close(stranger);
}

}  // namespace meshplan::runtime
