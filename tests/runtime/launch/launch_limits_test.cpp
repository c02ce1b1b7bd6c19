// Ranks and hosts at the edge of what fits, and how a job is judged.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "core/error.hpp"
#include "launch/launcher_line.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/launch/rendezvous.hpp"
#include "runtime/temporary_folder.hpp"

namespace meshplan::runtime {
namespace {

using namespace std::chrono_literals;

/// The line behind the name of the variable, once there is one. @returns empty after half a minute
std::string value_of(const char* variable, const std::string& file) {
  for (int i = 0; i < 600; ++i) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);)
      if (line == variable && std::getline(lines, line) && !lines.eof()) return line;
    std::this_thread::sleep_for(50ms);
  }
  return "";
}

}  // namespace

TEST_CASE("Ranks beyond the slots of a host share its cores", "[runtime][launch]") {
  // mpiexec starts over when slots run out: a host of two slots runs three ranks.
  LaunchSpec spec{
      .ranks = 3, .hosts = {{"far-1.invalid", 2}}, .cores_per_host = 2, .command = {"prog"}};
  CHECK_THAT(mpiexec_command(spec), !Catch::Matchers::VectorContains(std::string("-bind-to")));
  spec.cores_per_host = 3;
  CHECK_THAT(mpiexec_command(spec), Catch::Matchers::VectorContains(std::string("-bind-to")));
}

TEST_CASE("Slots that were given suffice for the ranks, or the job is refused",
          "[runtime][launch]") {
  CHECK_THROWS_WITH(
      require_slots(parse_host_list("localhost:3"), 4),
      Catch::Contains("hosts localhost:3 have 3 slots, but the job has 4 ranks: give them more, "
                      "for example localhost:4"));
  CHECK_THROWS_WITH(require_slots(parse_hostfile("a slots=2\nb:1\n", "hosts"), 8),
                    Catch::Contains("hosts a:2,b:1 have 3 slots, but the job has 8 ranks") &&
                        Catch::Contains("b:6"));
  CHECK_NOTHROW(require_slots(parse_host_list("a:2,b:2"), 4));
  CHECK(most_ranks(parse_host_list("a:2000000000,b:2000000000")) == 2147483647);
  // Without a number hosts share the ranks, and ranks may outnumber cores.
  CHECK_NOTHROW(require_slots(parse_host_list("a,b:1"), 64));
  CHECK_NOTHROW(require_slots({}, 64));
  CHECK(ranks_on_fullest_host(parse_host_list("far-1.invalid,far-2.invalid"), 5) == 3);
  CHECK(ranks_on_fullest_host(parse_host_list("far-1.invalid:4,far-2.invalid:1"), 5) == 4);
  CHECK(ranks_on_fullest_host(parse_host_list("localhost:2,127.0.0.1:2"), 4) == 4);
}

TEST_CASE("A list of hosts names each once", "[runtime][launch]") {
  CHECK_THROWS_WITH(parse_host_list("a:2,b,a"),
                    Catch::Contains("host 'a' is listed twice; give its ranks once, as a:3"));
}

TEST_CASE("No machine has more ranks than the job", "[runtime][launch]") {
  std::map<std::string, std::string> variables = {{"RANK", "1"},
                                                  {"WORLD_SIZE", "4"},
                                                  {"LOCAL_RANK", "3"},
                                                  {"MASTER_ADDR", "node-a"},
                                                  {"MASTER_PORT", "29500"}};
  const EnvironmentLookup lookup = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  CHECK(read_rendezvous(lookup)->local_rank == 3);
  variables["LOCAL_RANK"] = "4";
  CHECK_THROWS_WITH(read_rendezvous(lookup),
                    Catch::Contains("LOCAL_RANK='4': must be a number from 0 to 3"));
}

TEST_CASE("A job in which a death was reported has failed, whatever mpiexec returns",
          "[runtime][launch]") {
  const test::TemporaryFolder folder;
  const std::string heard = folder.path() + "/heard", arguments = folder.path() + "/arguments";
  // Stands in for mpiexec, which forgets ranks' exit codes at times.
  LaunchSpec spec{.ranks = 1, .bind_to_cores = false, .command = {"unused"}};
  spec.mpiexec = folder.file("mpiexec", "#!/bin/sh\nprintf '%s\\n' \"$@\" >" + arguments +
                                            "\nfor i in $(seq 300); do [ -e " + heard +
                                            " ] && break; sleep 0.1; done\nexit 0\n");
  std::filesystem::permissions(spec.mpiexec, std::filesystem::perms::owner_all);
  bool said = false;
  std::thread guardian([&] {
    {
      LauncherLine line(value_of(kReportSocketVariable, arguments));
      said = line.say(LauncherMessage::Kind::Report, 0,
                      "meshplan: the job ends: died: rank 0 of a test of the launcher\n");
    }
    std::ofstream(heard) << "yes";
  });
  const int code = launch_ranks(spec);
  guardian.join();
  CHECK(said);
  CHECK(code == 1);
}

}  // namespace meshplan::runtime
