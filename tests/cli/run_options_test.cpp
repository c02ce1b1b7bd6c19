// Every flag of `run` reaches its ranks, with the value that it has in the process that starts
// them.
#include "options/run/run_options.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fmt/format.h>
#include <set>

#include "core/error.hpp"
#include "options/command_line.hpp"
#include "runtime/train/kept_settings.hpp"

using namespace meshplan::cli;

namespace {

const std::set<std::string> kOfLauncher = {
    "--elastic",       "--failures-per-hour",  "--hostfile",    "--hosts", "--no-binding",
    "--node-failures", "--replace-slow-ranks", "--retry-after", "--spares"};

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
  const int code = line.run(static_cast<int>(arguments.size()), words.data());  // may throw
  REQUIRE(code == 0);
  return launch;
}

/// One that the option takes, and that is no option's default.
std::string value_for(const OptionInfo& option) {
  if (!option.choices.empty()) return option.choices.front();
  return option.most && *option.most < 3 ? "0.25" : "3";
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
    const std::string value = value_for(option);
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

TEST_CASE("run has the options that keep a resumed run as it was") {
  const std::vector<OptionInfo> options = launch({"run"}).options;
  const std::vector<std::string> kept = meshplan::runtime::options_of_kept_settings();
  REQUIRE(kept.size() > 10);
  for (const std::string& flag : kept) {
    INFO(flag);
    CHECK(std::ranges::find(options, flag, &OptionInfo::flag) != options.end());
  }
}

TEST_CASE("settings of the optimizer reach the ranks as they were given") {
  const std::vector<std::string> told =
      launch({"run", "plan.json", "--lr", "1e-3", "--warmup-steps", "20", "--lr-schedule",
              "constant", "--beta2", "0.999", "--clip-norm", "0"})
          .arguments;
  for (const auto& [flag, value] : {std::pair{"--learning-rate", "0.001"},
                                    {"--warmup-steps", "20"},
                                    {"--lr-schedule", "constant"},
                                    {"--beta2", "0.999"},
                                    {"--clip-norm", "0"}}) {
    INFO(flag);
    const auto found = std::ranges::find(told, flag);
    REQUIRE(found != told.end());
    CHECK(found[1] == value);
  }
  CHECK(std::ranges::find(told, "--beta1") == told.end());  // the plan's stays
}

TEST_CASE("a setting outside its range ends the command with the nearest that would do") {
  const auto refusal = [](const std::string& flag, const std::string& value) {
    try {
      launch({"run", "plan.json", flag, value});
    } catch (const meshplan::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  CHECK(refusal("--learning-rate", "0") ==
        "--learning-rate 0: must be from 1e-30 to 1000000000; nearest: 1e-30");
  CHECK_THAT(refusal("--lr", "inf"), Catch::Contains("nearest: 1000000000"));
  CHECK_THAT(refusal("--lr", "nan"), Catch::Contains("nearest: 1e-30"));
  CHECK_THAT(refusal("--lr", "-1"), Catch::Contains("nearest: 1e-30"));
  CHECK_THAT(refusal("--beta1", "1"), Catch::Contains("nearest: 0.99999994"));
  CHECK_THAT(refusal("--beta2", "-0.1"), Catch::Contains("nearest: 0"));
  CHECK_THAT(refusal("--epsilon", "0"), Catch::Contains("nearest: 1e-30"));
  CHECK_THAT(refusal("--momentum", "1.5"), Catch::Contains("nearest: 0.99999994"));
  CHECK_THAT(refusal("--weight-decay", "-1"), Catch::Contains("nearest: 0"));
  CHECK_THAT(refusal("--clip-norm", "-1"), Catch::Contains("nearest: 0"));
  CHECK_THAT(refusal("--warmup-steps", "-1"), Catch::Contains("nearest: 0"));
  CHECK_THAT(refusal("--min-lr-ratio", "2"), Catch::Contains("nearest: 1"));
  CHECK(refusal("--beta1", "0.99999994") == "taken");
}

TEST_CASE("settings go into the optimizer that reads them, and no other takes them") {
  const auto settings = [](std::vector<std::string> arguments) {
    RunOptions options;
    CommandLine line(Terminal{});
    Command command = line.add("run", "");
    add_run_options(command, options);
    command.on_run([] { return 0; });
    arguments.insert(arguments.begin(), {"meshplan", "run"});
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    REQUIRE(line.run(static_cast<int>(words.size()), words.data()) == 0);
    return options.optimizer_settings;
  };
  using meshplan::program::OptimizerConfig;
  OptimizerConfig config;
  CHECK(!apply(settings({}), config));
  CHECK(config == OptimizerConfig{});
  CHECK(apply(settings({"--lr", "0.5", "--min-lr-ratio", "0.25", "--beta1", "0.75", "--beta2",
                        "0.5", "--epsilon", "0.125", "--weight-decay", "2", "--clip-norm", "3",
                        "--warmup-steps", "4", "--decay-steps", "5"}),
              config));
  CHECK(config == OptimizerConfig{.learning_rate = 0.5,
                                  .beta1 = 0.75,
                                  .beta2 = 0.5,
                                  .epsilon = 0.125,
                                  .weight_decay = 2,
                                  .clip_norm = 3,
                                  .warmup_steps = 4,
                                  .decay_steps = 5,
                                  .minimum_ratio = 0.25});
  CHECK_THROWS_WITH(apply(settings({"--momentum", "0.5"}), config),
                    Catch::Contains("the optimizer is adamw, which has none"));
  CHECK_THROWS_WITH(apply(settings({"--lr-schedule", "constant", "--decay-steps", "9"}), config),
                    Catch::Contains("the learning rate is constant"));
  OptimizerConfig sgd{.kind = meshplan::program::OptimizerKind::Sgd};
  CHECK(apply(settings({"--momentum", "0.5"}), sgd));
  CHECK(sgd.momentum == 0.5);
  CHECK_THROWS_WITH(apply(settings({"--beta1", "0.5"}), sgd), Catch::Contains("sgd"));
}

TEST_CASE("ranks get the plan and all paths of a run absolute") {
  const std::vector<std::string> told = launch({"run",
                                                "plan.json",
                                                "--data",
                                                "a.txt",
                                                "--log",
                                                "l",
                                                "--trace",
                                                "t",
                                                "--chrome",
                                                "c",
                                                "--kineto",
                                                "k",
                                                "--checkpoint-dir",
                                                "d",
                                                "--resume",
                                                "r",
                                                "--init-from",
                                                "i",
                                                "--gemm-cache",
                                                "g"})
                                            .arguments;
  REQUIRE(told.front() == "run");
  for (const char* path : {"plan.json", "a.txt", "l", "t", "c", "k", "d", "r", "i", "g"}) {
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
