// What a job's end needs to know of the machine: processes, memory that is left, memory that is
// refused.
#include <catch2/catch.hpp>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.hpp"
#include "os/host_lookup.hpp"
#include "os/orphaned_memory.hpp"
#include "os/out_of_memory.hpp"
#include "os/process_watch.hpp"
#include "runtime/launch/launch.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("A process is seen to end, before and after its parent collects it",
          "[runtime][faults]") {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ProcessWatch watch(child);
  CHECK_FALSE(watch.ended());
  CHECK(parent_of(child) == getpid());
  const std::vector<int> children = children_of(getpid());
  CHECK(std::count(children.begin(), children.end(), child) == 1);
  CHECK(ancestors_of(child).at(0) == getpid());
  CHECK(resident_bytes_of(child) > 0);
  CHECK(exit_status_of(child) == -1);
  watch.signal(SIGKILL);
  pollfd ready{watch.descriptor(), POLLIN, 0};
  CHECK(poll(&ready, 1, 5000) == 1);
  CHECK(watch.ended());
  CHECK(process_state(child) == 'Z');
  const int status = exit_status_of(child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  waitpid(child, nullptr, 0);
  CHECK(process_state(child) == 'X');
  CHECK(exit_status_of(child) == -1);
  CHECK(ProcessWatch(child).ended());
}

TEST_CASE("Shared memory that nobody uses is removed, and nothing else", "[runtime][faults]") {
  const auto path = [](const char* name) { return fmt::format("/dev/shm/{}{}", name, getpid()); };
  const auto make = [](const std::string& file) {
    return open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  };
  const std::string orphan = path("mpich_shar_tmp");
  const std::string used = path("ucx_shm_posix_");
  const std::string foreign = path("another-program-");
  const std::time_t start = std::time(nullptr);
  close(make(orphan));
  close(make(foreign));
  const int in_use = make(used);
  CHECK(remove_orphaned_shared_memory(start + 3600) == 0);  // made before that job
  CHECK(remove_orphaned_shared_memory(start) >= 1);
  CHECK(access(orphan.c_str(), F_OK) != 0);
  CHECK(access(used.c_str(), F_OK) == 0);
  CHECK(access(foreign.c_str(), F_OK) == 0);
  close(in_use);
  unlink(used.c_str());
  unlink(foreign.c_str());
}

TEST_CASE("The kernel's counters are read by their whole names", "[runtime][faults]") {
  constexpr const char* kEvents = "low 0\noom 3\noom_kill 2\noom_group_kill 7\n";
  CHECK(counter_in(kEvents, "oom_kill") == 2);
  CHECK(counter_in(kEvents, "oom") == 3);
  CHECK(counter_in(kEvents, "kill") == 0);
  CHECK(counter_in("", "oom_kill") == 0);
  CHECK(OutOfMemoryKills().since_start().empty());
  CHECK_THAT(
      describe_refused_memory(std::runtime_error("8 bytes were refused")),
      Contains("out of memory: 8 bytes were refused; it holds 0.") && Contains("GiB are free"));
}

TEST_CASE("A host that nobody knows is named before anything starts", "[runtime][faults]") {
  CHECK_NOTHROW(require_known_hosts({{"localhost", 2}, {"127.0.0.1", 1}}));
  try {
    require_known_hosts({{"localhost", 2}, {"nosuchhost.invalid", 1}});
    FAIL("nosuchhost.invalid is known");
  } catch (const std::exception& error) {  // a ConfigError, or an IoError where there is no DNS
    CHECK_THAT(error.what(), Contains("host 'nosuchhost.invalid' is not known to this machine"));
  }
  CHECK(look_up("127.0.0.1").addresses == std::set<std::string>{std::string("\x7f\0\0\1", 4)});
}

}  // namespace
}  // namespace meshplan::runtime
