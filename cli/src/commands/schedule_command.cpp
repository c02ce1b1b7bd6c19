// meshplan schedule: draw a pipeline schedule, write it in PyTorch's form, check one of your own.
#include <algorithm>
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "program/plan/plan_names.hpp"
#include "program/schedule/csv.hpp"
#include "program/schedule/generators.hpp"
#include "reports/schedule_report.hpp"

namespace meshplan::cli {
namespace {

using program::Schedule;
using program::ScheduleKind;

struct ScheduleOptions {
  std::optional<std::string> file;
  std::optional<ScheduleKind> schedule;
  int pp = 4;
  std::optional<int> vpp;
  std::optional<int> num_microbatches;
  std::optional<std::string> csv;
  bool json = false;
};

struct Named {
  std::string name;
  Schedule schedule;
  int num_microbatches = 0;
};

Named from_file(const ScheduleOptions& options) {
  Named named{.name = *options.file,
              .schedule = program::parse_schedule_csv(read_file(*options.file), *options.file)};
  for (const program::Task& task : named.schedule.tasks.front())
    named.num_microbatches = std::max(named.num_microbatches, task.microbatch + 1);
  const auto errors = schedule_errors(named.schedule, named.num_microbatches);
  if (!errors.empty()) throw ConfigError(fmt::format("{}: {}", *options.file, errors.front()));
  return named;
}

Named from_flags(const ScheduleOptions& options) {
  const ScheduleKind kind = options.schedule.value_or(ScheduleKind::OneFOneB);
  const std::string name(name_of(kind));
  const std::optional<int> chunks = program::fixed_chunks(kind);
  const int vpp = options.vpp.value_or(program::fewest_chunks(kind));
  const auto m64 = options.num_microbatches ? std::int64_t{*options.num_microbatches}
                                            : std::int64_t{2} * options.pp;
  for (const auto& [flag, value] :
       {std::pair("--pp", std::int64_t{options.pp}), {"--vpp", vpp}, {"--microbatches", m64}})
    if (value < 1) throw ConfigError(fmt::format("{} {}: must be at least 1", flag, value));
  if (chunks && vpp != *chunks)
    throw ConfigError(fmt::format("--vpp {}: schedule '{}' has {} chunk{} a rank; use --vpp {}",
                                  vpp, name, *chunks, *chunks == 1 ? "" : "s", *chunks));
  constexpr double kTasksOfOne = 3;  // forward and the halves of the backward
  const std::int64_t generated = program::generated_microbatches(kind, options.pp, m64);
  const double tasks = kTasksOfOne * options.pp * vpp * static_cast<double>(generated);
  if (tasks > static_cast<double>(limits::kTasks))
    throw ConfigError(fmt::format(
        "--pp {} * --vpp {} * {} micro-batches{} is more than can be "
        "drawn; at most {} tasks",
        options.pp, vpp, generated, generated > m64 ? " (a full pipeline)" : "", limits::kTasks));
  const int m = static_cast<int>(m64);
  return {.name = name,
          .schedule = program::make_schedule(kind, options.pp, m, vpp),
          .num_microbatches = m};
}

/// A picture has a cell for each rank and time slot, idle or not.
void require_drawable(const program::Schedule& schedule) {
  std::size_t longest = 0;
  for (const auto& tasks : schedule.tasks) longest = std::max(longest, tasks.size());
  const auto stages = static_cast<std::int64_t>(schedule.tasks.size());
  const std::int64_t slots = static_cast<std::int64_t>(longest) + 2 * stages;  // fill and drain
  if (stages * slots > limits::kDrawnCells)
    throw ConfigError(fmt::format(
        "a picture of {} ranks and about {} time slots has more than {} cells; --json lists the "
        "tasks alone",
        stages, slots, limits::kDrawnCells));
}

int run(const ScheduleOptions& options) {
  if (options.file && options.schedule)
    throw ConfigError("a schedule file and --schedule exclude each other; leave one out");
  const Named named = options.file ? from_file(options) : from_flags(options);
  if (!options.json) require_drawable(named.schedule);
  if (options.csv) write_file(*options.csv, program::to_csv(named.schedule));
  output("{}", options.json ? reports::to_json(named.schedule, named.name, named.num_microbatches)
                            : reports::to_text(named.schedule, named.name, named.num_microbatches));
  return kDone;
}

}  // namespace

void add_schedule_command(CommandLine& line) {
  const auto options = std::make_shared<ScheduleOptions>();
  line.add("schedule", "Draw a pipeline schedule; write it as CSV; check one of your own")
      .positional("file", options->file,
                  "a schedule in PyTorch's CSV form; or ask for one with the flags below")
      .is_path()
      .choice("--schedule", options->schedule, "default: 1f1b", {ScheduleKind::Custom})
      .option("--pp", options->pp, "stages")
      .option("--vpp", options->vpp, "chunks of a rank; default: what the schedule needs")
      .option("--microbatches", options->num_microbatches, "default: twice the stages")
      .option("--csv", options->csv,
              "write a line per rank: 0F0 is forward of virtual stage 0 and micro-batch 0, B a "
              "backward, I and W its halves (torch.distributed.pipelining, compute_only)")
      .is_path()
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan schedule --schedule zb-v --pp 4 --microbatches 8\n"
          "  meshplan schedule --schedule interleaved --vpp 2 --csv mine.csv\n"
          "  meshplan schedule mine.csv                 # then: meshplan simulate ... "
          "--schedule-file mine.csv")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
