// meshplan sweep: how many devices are worth having, what memory costs, what is the most that fits.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "options/whole_run/training_run_options.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "process/exit_codes.hpp"
#include "process/threads.hpp"
#include "reports/search_report.hpp"
#include "reports/sweep_report.hpp"
#include "requests/plan_request.hpp"

namespace meshplan::cli {
namespace {

struct SweepOptions {
  PlanRequest request;
  TrainingRunOptions run;
  std::optional<std::string> devices;
  std::optional<double> deadline_s;
  bool frontier = false;
  bool longest_sequence = false;
  bool most_layers = false;
  bool json = false;
};

/// "64..4096"
std::vector<int> counts_of(const std::string& text) {
  const auto fail = [&] {
    return ConfigError(
        fmt::format("--devices {}: expected FIRST..LAST, for example 64..4096", text));
  };
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos) throw fail();
  const auto number = [&](std::size_t begin, std::size_t end) {
    int value = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (error != std::errc() || rest != text.data() + end) throw fail();
    return value;
  };
  return planner::device_counts(number(0, dots), number(dots + 2, text.size()));
}

int show_largest(const SweepOptions& options,
                 const std::optional<planner::LargestThatFits>& largest, const std::string& what) {
  if (!largest) {
    output("{}", options.json ? "{}\n" : "nothing fits\n");
    return kInfeasible;
  }
  output("{}", options.json ? reports::largest_json(*largest, what)
                            : reports::largest_text(*largest, what));
  return kDone;
}

int run(const SweepOptions& options, const Terminal& terminal) {
  const int asked = (options.devices ? 1 : 0) + (options.frontier ? 1 : 0) +
                    (options.longest_sequence ? 1 : 0) + (options.most_layers ? 1 : 0);
  if (asked != 1)
    throw ConfigError(
        "sweep takes one of --devices FIRST..LAST, --frontier, --longest-sequence and "
        "--most-layers");
  if (options.deadline_s && (!options.devices || !(*options.deadline_s > 0)))
    throw ConfigError(fmt::format(
        "--deadline {:g}: seconds of a step, more than 0, beside --devices", *options.deadline_s));
  const std::vector<int> counts =
      options.devices ? counts_of(*options.devices) : std::vector<int>{};
  const ResolvedRequest resolved = resolve(options.request);
  const planner::SearchRequest& request = resolved.request;
  const std::optional<planner::TrainingRunQuestion> question =
      training_run_question(options.run, request.cluster);
  const planner::ParallelFor threads = on_threads(options.request.threads);
  const auto progress = [&](const std::string& what) {
    if (!terminal.silent) output(stderr, "sweep: {}\n", what);
  };
  if (!options.json) output("{}\n", reports::request_header(request, resolved.assumptions));
  if (options.longest_sequence)
    return show_largest(options, planner::longest_sequence(request, threads, progress), "tokens");
  if (options.most_layers)
    return show_largest(options, planner::most_layers(request, threads, progress), "layers");
  if (options.frontier) {
    constexpr int kMostPoints = 10;
    const auto frontier = planner::memory_frontier(request, kMostPoints, threads, progress);
    if (frontier.empty()) {
      output("{}", options.json ? "[]\n" : "nothing fits\n");
      return kInfeasible;
    }
    output("{}",
           options.json ? reports::frontier_json(frontier) : reports::frontier_text(frontier));
    return kDone;
  }
  const planner::DeviceSweep sweep =
      planner::sweep_devices(request, counts, options.deadline_s, threads, progress);
  output("{}",
         options.json ? reports::to_json(sweep, question) : reports::to_text(sweep, question));
  return sweep.fastest ? kDone : kInfeasible;
}

}  // namespace

void add_sweep_command(CommandLine& line) {
  const auto options = std::make_shared<SweepOptions>();
  Command command =
      line.add("sweep", "Search over numbers of devices, memory, sequences or layers");
  command.group("What to vary")
      .option("--devices", options->devices, "FIRST..LAST: how many devices are worth having")
      .option("--deadline", options->deadline_s,
              "seconds of a step: the fewest devices that keep it, beside --devices")
      .flag("--frontier", options->frontier, "the fastest plan for ever less memory")
      .flag("--longest-sequence", options->longest_sequence, "that fits")
      .flag("--most-layers", options->most_layers, "of the model, that fit")
      .flag("--json", options->json, "print the result for programs");
  add_training_run_options(command, options->run);
  add_plan_request(command, options->request);
  add_plan_failures(command, options->request);
  command
      .examples(
          "  meshplan sweep --devices 64..4096 --model llama3-70b --cluster dgx-h100 \\\n"
          "      --global-batch 1024 --tokens 15e12 --price-per-gpu-hour 2.5\n"
          "  meshplan sweep --longest-sequence --model llama3-8b --cluster dgx-h100 --gpus 8 \\\n"
          "      --global-batch 8")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
