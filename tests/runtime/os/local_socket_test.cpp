#include "os/local_socket.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.hpp"
#include "launch/launcher_line.hpp"

namespace meshplan::runtime {
namespace {

constexpr uid_t kStranger = 65534;

/// Exit code of `work` in a process of another user; -1 if this user cannot become one.
int as_stranger(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(setresuid(kStranger, kStranger, kStranger) == 0 ? work() : 255);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) != 255 ? WEXITSTATUS(status) : -1;
}

std::string fresh_name() {
  static int count = 0;
  return fmt::format("meshplan-test-{}-{}", getpid(), ++count);
}

int connect_unchecked(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int made = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return connect(made, reinterpret_cast<const sockaddr*>(&address), length) == 0 ? made : -1;
}

TEST_CASE("A local socket is for its own user alone, at both ends", "[runtime][faults]") {
  const std::string name = fresh_name();
  const int listener = listen_locally(name);
  const int mine = connect_locally(name);
  const auto peer = accept_own_user(listener);
  REQUIRE(peer);
  CHECK(peer->pid == getpid());
  CHECK_FALSE(accept_own_user(listener));
  ::close(mine);
  ::close(peer->socket);

  const int code = as_stranger([&] {
    try {
      return ::close(connect_locally(name));
    } catch (const IoError& error) {
      return std::string(error.what()).ends_with("belongs to another user") ? 2 : 1;
    }
  });
  if (code < 0)
    WARN("not tested: another user's connection, for only root can become another user");
  else
    CHECK(code == 2);
  CHECK_FALSE(accept_own_user(listener));
  ::close(listener);
}

TEST_CASE("A stranger's report is not heard", "[runtime][faults]") {
  LauncherDesk desk;
  const auto report = [&] {
    // A stranger does not ask whose socket it is.
    const int socket = connect_unchecked(desk.name());
    const char text[] = "\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0you have been pwned";
    const bool sent = send(socket, text, sizeof text - 1, MSG_NOSIGNAL) > 0;
    return ::close(socket) == 0 && sent ? 0 : 1;
  };
  CHECK(report() == 0);
  CHECK(desk.hear() == std::vector<std::string>{"you have been pwned"});  // from its own user
  const int code = as_stranger(report);
  if (code < 0) {
    WARN("not tested: only root can become another user");
    return;
  }
  CHECK(code == 0);
  CHECK(desk.hear().empty());
  CHECK_FALSE(desk.has_callers());
}

TEST_CASE("The launcher hears ranks, guardians and losses", "[runtime][faults]") {
  using Kind = LauncherMessage::Kind;
  LauncherDesk desk;
  LauncherLine watched(desk.name());
  LauncherLine guardian(desk.name());
  {
    LauncherLine lost(desk.name());
    CHECK(lost.launcher() == getpid());
    CHECK(lost.say(Kind::Rank, 3, "starting MPI"));
    CHECK(watched.say(Kind::Rank, 4, "starting MPI"));
    CHECK(watched.say(Kind::Watched, 4));
    CHECK(guardian.say(Kind::Report, 0, "died: rank 9"));
    CHECK(desk.hear() == std::vector<std::string>{"died: rank 9"});
    CHECK(desk.lost().empty());
    CHECK_FALSE(lost.lost());
  }
  watched.hang_up();
  desk.hear();
  REQUIRE(desk.lost().size() == 1);
  CHECK(desk.lost()[0].rank == 3);
  CHECK(desk.lost()[0].doing == "starting MPI");
  CHECK(desk.has_callers());  // the guardian
  CHECK(desk.has_heard(4));
  CHECK_FALSE(desk.has_heard(9));
  guardian.hang_up();
  desk.hear();
  CHECK_FALSE(desk.has_callers());

  const LauncherLine nobody("meshplan-nobody-listens-here");
  CHECK_FALSE(nobody.is_connected());
}

TEST_CASE("Causes are heard in the order in which they were said", "[runtime][faults]") {
  using Kind = LauncherMessage::Kind;
  LauncherDesk desk;
  LauncherLine guardian(desk.name());
  CHECK(desk.hear().empty());
  LauncherLine rank(desk.name());
  CHECK(rank.say(Kind::Report, 0, "no guardians"));
  CHECK(guardian.say(Kind::Report, 0, "died"));  // what the first led to, on an older line
  CHECK(desk.hear() == std::vector<std::string>{"no guardians", "died"});
}

}  // namespace
}  // namespace meshplan::runtime
