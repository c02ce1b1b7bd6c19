// Every flag of `run` reaches its ranks, with the value that it has in the process that starts
// them.
#include "options/run_options.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fmt/format.h>
#include <set>

#include "options/command_line.hpp"

using namespace meshplan::cli;

namespace {

const std::set<std::string> kOfLauncher = {"--hosts", "--hostfile", "--no-binding"};

/// What is said to ranks when `run` is called with these arguments.
struct Launch {
  std::vector<OptionInfo> options;
  std::vector<std::string> arguments;
};

Launch launch(std::vector<std::string> arguments) {
  Launch launch;
  CommandLine line(Terminal{});
  RunOptions options;
  Command command = line.add("run", "");
  add_run_options(command, options);
  command.on_run([&] {
    launch.arguments = command.arguments_of_ranks();
    return 0;
  });
  launch.options = command.options();
  arguments.insert(arguments.begin(), "meshplan");
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  REQUIRE(line.run(static_cast<int>(arguments.size()), words.data()) == 0);
  return launch;
}

std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).string();
}

}  // namespace

TEST_CASE("each flag of run reaches the ranks") {
  const std::vector<OptionInfo> options = launch({"run"}).options;
  REQUIRE(options.size() > 30);
  std::set<std::string> of_launcher;
  for (const OptionInfo& option : options) {
    if (option.is_positional) continue;
    INFO(option.flag);
    const std::string value = option.choices.empty() ? "3" : option.choices.front();
    std::vector<std::string> given = {"run", "plan.json", option.flag};
    if (option.takes_value()) given.push_back(value);
    const std::vector<std::string> told = launch(given).arguments;
    const auto found = std::ranges::find(told, option.flag);
    if (found == told.end()) {
      of_launcher.insert(option.flag);
      continue;
    }
    if (option.takes_value()) {
      REQUIRE(found + 1 != told.end());
      CHECK((found[1] == value || found[1] == absolute(value)));
    }
    CHECK(launch(told).arguments == told);  // and so do they say it themselves
  }
  CHECK(of_launcher == kOfLauncher);
}

TEST_CASE("ranks get the plan and all paths of a run absolute") {
  const std::vector<std::string> told =
      launch({"run", "plan.json", "--data", "a.txt", "--log", "l", "--trace", "t", "--chrome", "c",
              "--checkpoint-dir", "d", "--resume", "r", "--init-from", "i", "--gemm-cache", "g"})
          .arguments;
  REQUIRE(told.front() == "run");
  for (const char* path : {"plan.json", "a.txt", "l", "t", "c", "d", "r", "i", "g"}) {
    INFO(path);
    CHECK(std::ranges::find(told, absolute(path)) != told.end());
    CHECK(std::ranges::find(told, path) == told.end());
  }
}

TEST_CASE("what is said of an option does not touch the one before") {
  CommandLine line(Terminal{});
  Command command = line.add("try", "");
  std::optional<bool> sp;
  std::optional<int> tp;
  command.group("Plan")
      .option("--tp", tp, "")
      .in_plan("parallel.tp")
      .on_off("sp", sp, "")
      .in_plan("parallel.sp");
  std::vector<GivenOption> given;
  command.on_run([&] {
    given = command.given("Plan");
    return 0;
  });
  std::vector<std::string> words = {"meshplan", "try", "--tp", "4", "--no-sp"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  REQUIRE(line.run(static_cast<int>(argv.size()), argv.data()) == 0);
  REQUIRE(given.size() == 2);
  CHECK(given[0].flag == "--tp");
  CHECK(given[0].plan_path == "parallel.tp");
  CHECK(given[0].plan_value == "4");
  CHECK(given[1].flag == "--no-sp");
  CHECK(given[1].plan_path == "parallel.sp");
  CHECK(given[1].plan_value == "false");
  CHECK(command.arguments_of_ranks() == std::vector<std::string>{"try", "--tp", "4", "--no-sp"});
}
