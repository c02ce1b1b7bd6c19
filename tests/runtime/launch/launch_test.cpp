#include "runtime/launch/launch.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "launch/launcher_line.hpp"
#include "os/process_watch.hpp"
#include "runtime/temporary_folder.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

TEST_CASE("Hosts are read from lists and files, with slots", "[runtime][launch]") {
  CHECK(parse_host_list("a:4,b-2.cluster") ==
        std::vector<HostSlots>{{"a", 4, true}, {"b-2.cluster", 1}});
  CHECK(parse_hostfile("# two hosts\n\n a:2 # first\nb slots=3\nc\n", "hosts") ==
        std::vector<HostSlots>{{"a", 2, true}, {"b", 3, true}, {"c", 1}});
}

TEST_CASE("Bad hosts are refused with file, line, value and rule", "[runtime][launch]") {
  CHECK_THROWS_WITH(parse_hostfile("a\nb:x\n", "hosts"),
                    Contains("hosts:2") && Contains("'x'") && Contains("1 or more"));
  CHECK_THROWS_WITH(parse_hostfile("a\nb slot=2\n", "hosts"),
                    Contains("hosts:2") && Contains("slots=4"));
  CHECK_THROWS_WITH(parse_hostfile("# nothing\n", "hosts"), Contains("no hosts"));
  CHECK_THROWS_WITH(parse_hostfile("a\na:3\n", "hosts"), Contains("twice") && Contains("a:4"));
  CHECK_THROWS_WITH(parse_host_list("a,,b"), Contains("not a host name"));
  CHECK_THROWS_WITH(parse_host_list("a:0"), Contains("'0'"));
  CHECK_THROWS_AS(parse_host_list("-launcher"), ConfigError);
}

TEST_CASE("Ranks are bound to cores only if each gets one", "[runtime][launch]") {
  LaunchSpec spec{.ranks = 2, .cores_per_host = 2, .command = {"prog", "--flag"}};
  CHECK(mpiexec_command(spec) ==
        Words{"mpiexec", "-n", "2", "-bind-to", "core", "-map-by", "core", "prog", "--flag"});
  spec.ranks = 3;
  CHECK(mpiexec_command(spec) == Words{"mpiexec", "-n", "3", "prog", "--flag"});
  // Twelve ranks on three hosts of two slots: two rounds, four ranks a host.
  spec = {.ranks = 12,
          .hosts = {{"far-1.invalid", 2}, {"far-2.invalid", 2}, {"far-3.invalid", 2}},
          .cores_per_host = 4,
          .command = {"prog"}};
  CHECK(mpiexec_command(spec) == Words{"mpiexec", "-n", "12", "-hosts",
                                       "far-1.invalid:2,far-2.invalid:2,far-3.invalid:2",
                                       "-bind-to", "core", "-map-by", "core", "prog"});
  spec.cores_per_host = 3;
  CHECK_THAT(mpiexec_command(spec), !Catch::Matchers::VectorContains(std::string("-bind-to")));
}

TEST_CASE("Ranks with a progress thread get two cores, one if none is spare, any if some are",
          "[runtime][launch]") {
  LaunchSpec spec{.ranks = 2, .cores_per_host = 4, .cores_per_rank = 2, .command = {"prog"}};
  CHECK(mpiexec_command(spec) ==
        Words{"mpiexec", "-n", "2", "-bind-to", "core:2", "-map-by", "core:2", "prog"});
  spec.cores_per_host = 3;
  CHECK(mpiexec_command(spec) == Words{"mpiexec", "-n", "2", "prog"});
  spec.cores_per_host = 2;
  CHECK(mpiexec_command(spec) ==
        Words{"mpiexec", "-n", "2", "-bind-to", "core", "-map-by", "core", "prog"});
  spec.cores_per_host = 1;
  CHECK(mpiexec_command(spec) == Words{"mpiexec", "-n", "2", "prog"});
}

TEST_CASE("Several names of this machine need no ssh and share its cores", "[runtime][launch]") {
  CHECK(is_this_machine("localhost"));
  CHECK(is_this_machine("127.0.0.1"));
  CHECK_FALSE(is_this_machine("far-1.invalid"));
  const LaunchSpec spec{.ranks = 4,
                        .hosts = {{"localhost", 2}, {"127.0.0.1", 2}},
                        .cores_per_host = 2,
                        .command = {"prog"}};
  CHECK(mpiexec_command(spec) == Words{"mpiexec", "-n", "4", "-hosts", "localhost:2,127.0.0.1:2",
                                       "-launcher", "fork", "prog"});
}

TEST_CASE("The environment is passed by name and value", "[runtime][launch]") {
  LaunchSpec spec{
      .ranks = 1, .bind_to_cores = false, .environment = {"A=b=c"}, .command = {"prog"}};
  CHECK(mpiexec_command(spec) == Words{"mpiexec", "-n", "1", "-genv", "A", "b=c", "prog"});
  spec.environment = {"A"};
  CHECK_THROWS_WITH(mpiexec_command(spec), Contains("NAME=VALUE"));
  spec = {.ranks = 0, .command = {"prog"}};
  CHECK_THROWS_AS(mpiexec_command(spec), ConfigError);
}

TEST_CASE("A rank of an outer mpiexec or srun knows it; a batch script is no rank",
          "[runtime][launch]") {
  std::map<std::string, std::string> variables;
  const EnvironmentLookup lookup = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  CHECK_FALSE(detect_outer_launch(lookup));
  variables = {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}};
  CHECK(detect_outer_launch(lookup) == OuterLaunch{"mpiexec", 3, 8});
  variables = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}};
  CHECK_FALSE(detect_outer_launch(lookup));
  variables["SLURM_SRUN_COMM_HOST"] = "10.0.0.1";
  CHECK(detect_outer_launch(lookup) == OuterLaunch{"srun", 0, 4});
}

TEST_CASE("The exit code of the job comes back; foreign codes count as failure",
          "[runtime][launch]") {
  // Programs that ignore their arguments stand in for mpiexec.
  const auto exit_code = [](const std::string& program) {
    LaunchSpec spec{.ranks = 1, .bind_to_cores = false, .command = {"unused"}};
    spec.mpiexec = program;
    return launch_ranks(spec);
  };
  CHECK(exit_code("true") == 0);
  CHECK(exit_code("false") == 1);
  CHECK_THROWS_AS(exit_code("no-such-launcher-anywhere"), IoError);
}

TEST_CASE("Of mpiexec's exit codes our own come back, and all others are 1", "[runtime][launch]") {
  const test::TemporaryFolder folder;
  const auto exit_code_of = [&](const std::string& last_line) {
    LaunchSpec spec{.ranks = 1, .bind_to_cores = false, .command = {"unused"}};
    spec.mpiexec = folder.file("launcher.sh", "#!/bin/sh\n" + last_line + "\n");
    std::filesystem::permissions(spec.mpiexec, std::filesystem::perms::owner_all);
    return launch_ranks(spec);
  };
  for (const int own : {2, 3, kInterrupted})  // cli/src/process/exit_codes.hpp
    CHECK(exit_code_of("exit " + std::to_string(own)) == own);
  for (const int foreign : {4, 255}) CHECK(exit_code_of("exit " + std::to_string(foreign)) == 1);
  CHECK(exit_code_of("kill -9 $$") == 1);
}

TEST_CASE("A rank that mpiexec leaves behind is ended with the job", "[runtime][launch]") {
  const test::TemporaryFolder folder;
  LaunchSpec spec{.ranks = 1, .bind_to_cores = false, .command = {"unused"}};
  const std::string rank = folder.path() + "/rank";
  // Its arguments: -n 1 -genv NAME VALUE unused
  spec.mpiexec = folder.file("launcher.sh", "#!/bin/sh\nenv \"$4=$5\" setsid sleep 600 >" + rank +
                                                ".out 2>&1 &\necho $! >" + rank + "\nexit 130\n");
  std::filesystem::permissions(spec.mpiexec, std::filesystem::perms::owner_all);
  CHECK(launch_ranks(spec) == kInterrupted);
  int pid = 0;
  std::ifstream(rank) >> pid;
  REQUIRE(pid > 0);
  const char state = process_state(pid);
  CHECK((state == 'X' || state == 'Z'));
}

TEST_CASE("A job is ended in time, and a job that ends by itself is not", "[runtime][launch]") {
  const test::TemporaryFolder folder;
  const auto exit_code_of = [&](const std::string& last_line, std::chrono::seconds limit) {
    LaunchSpec spec{.ranks = 1, .bind_to_cores = false, .command = {"unused"}};
    spec.mpiexec = folder.file("launcher.sh", "#!/bin/sh\n" + last_line + "\n");
    spec.ends_at = std::chrono::steady_clock::now() + limit;
    std::filesystem::permissions(spec.mpiexec, std::filesystem::perms::owner_all);
    return launch_ranks(spec);
  };
  using std::chrono::seconds;
  CHECK(exit_code_of("exec sleep 600", seconds{1}) == kTimeIsOver);
  // With the mark of a rank (-n 1 -genv NAME VALUE unused), or it would outlive the test with its
  // output, where the launcher comes to set its trap before it is asked.
  CHECK(exit_code_of("trap '' TERM; env \"$4=$5\" sleep 600 & wait; wait", seconds{0}) ==
        kTimeIsOver);
  CHECK(exit_code_of("exit 0", seconds{600}) == 0);
  CHECK(exit_code_of("exit 3", seconds{600}) == 3);
}

}  // namespace
}  // namespace meshplan::runtime
