// meshplan report: a plan, its step and what is known of it, as one HTML file.
#include <chrono>
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "options/foreign.hpp"
#include "options/inputs.hpp"
#include "options/plan_input.hpp"
#include "options/search_options.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "planner/search/reasons.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/gzip.hpp"
#include "process/threads.hpp"
#include "program/trace/trace_blocks.hpp"
#include "reports/html/page.hpp"
#include "reports/software_report.hpp"
#include "requests/page_request.hpp"
#include "requests/simulate_request.hpp"

namespace meshplan::cli {
namespace {

struct ReportOptions {
  std::optional<std::string> file;
  PlanOptions plan;
  std::optional<std::string> measured;
  std::optional<std::string> out;
  std::optional<double> memory_reserve;
  std::int64_t bars = reports::kMostBars;
  bool search = false;
  SearchOptions space;
  int threads = 0;
  bool json = false;
  bool schema = false;
};

/// The search that `plan` makes for the same model, cluster and work; and two more views of it.
reports::PageSearch page_search(const ReportOptions& options, const PlanOnCluster& input,
                                const Terminal& terminal) {
  constexpr int kMostPoints = 10;
  const planner::PricedOn on{input.cluster, memory_reserve(options.memory_reserve)};
  planner::SearchRequest request = planner::search_for(input.plan, on);
  request.constraints.rank_order.reset();  // another may be faster
  apply(options.space, request);
  const planner::ParallelFor threads = on_threads(options.threads);
  const auto start = std::chrono::steady_clock::now();
  const ElapsedTime elapsed("searching", terminal);
  reports::PageSearch search{.outcome = planner::search_open_choices(request, threads)};
  search.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  search.cells = planner::degree_grid(request, threads);
  search.frontier = planner::memory_frontier(request, kMostPoints, threads);
  return search;
}

std::optional<program::Trace> measured_trace(const ReportOptions& options,
                                             const PlanOnCluster& input) {
  if (!options.measured) return std::nullopt;
  program::Trace trace =
      program::parse_trace(unpacked_blocks(*options.measured), *options.measured);
  reports::require_run_of(input.plan, input_name(*options.file, "plan"), trace, *options.measured);
  return trace;
}

std::string written_line(const std::string& file, std::size_t bytes, const reports::Page& page) {
  std::string text =
      fmt::format("{}  {}, step time {}", file, planner::format_bytes(static_cast<double>(bytes)),
                  planner::format_seconds(page.simulation.simulation.step_time_s));
  if (page.comparison)
    text += fmt::format(" predicted, {} measured",
                        planner::format_seconds(page.comparison->measured.median_s));
  return text + "\n";
}

/// Other software has neither operations nor a search of its own here.
int report_other_software(const ReportOptions& options, const PlanOnCluster& input) {
  if (options.measured) refuse_operations("--measured");
  if (options.search) refuse_operations("--search");
  for (const std::string& note : input.notes) output(stderr, "{}\n", printable_line(note));
  const reports::SoftwareReport report =
      reports::software_report(input.plan, input.cluster, memory_reserve(options.memory_reserve),
                               input.adjustment.get(), stack_refusals(input.source, input.plan));
  if (options.out) {
    const std::string html = reports::to_html(report, "meshplan " + program_version());
    write_file(*options.out, html);
    if (!options.json)
      output("{}  {}, step time {}\n", *options.out,
             planner::format_bytes(static_cast<double>(html.size())),
             planner::format_seconds(report.prediction.step_time_s));
  }
  if (options.json) output("{}", reports::to_json(report));
  return report.prediction.memory.fits() ? kDone : kInfeasible;
}

int run(const ReportOptions& options, const Terminal& terminal) {
  if (options.schema) {
    output("{}", reports::page_schema());
    return kDone;
  }
  if (!options.file || (!options.out && !options.json))
    throw ConfigError(
        "report needs a plan's file and where to write: meshplan report plan.json --out "
        "report.html (`meshplan plan --out plan.json` writes a plan)");
  require_writable({options.out});
  const PlanOnCluster input = plan_of_file(*options.file, options.plan);
  if (!input.of_own_software()) return report_other_software(options, input);
  const std::optional<program::Trace> measured = measured_trace(options, input);
  reports::Page page = [&] {
    const ElapsedTime elapsed("simulating", terminal);
    return reports::page_of(
        input.plan, input.cluster,
        {.memory_reserve = memory_reserve(options.memory_reserve), .most_bars = options.bars},
        measured);
  }();
  page.generator = "meshplan " + program_version();
  if (options.search) page.search = page_search(options, input, terminal);
  if (options.out) {
    const std::string html = reports::to_html(page);
    write_file(*options.out, html);
    if (!options.json) output("{}", written_line(*options.out, html.size(), page));
  }
  if (options.json) output("{}", reports::page_json(page));
  for (const reports::StepTimeline* timeline :
       {&page.predicted, page.measured ? &*page.measured : nullptr})
    if (!options.json && timeline != nullptr && !timeline->note.empty())
      output("note     {}\n", timeline->note);
  return page.simulation.simulation.memory.fits() ? kDone : kInfeasible;
}

}  // namespace

void add_report_command(CommandLine& line) {
  const auto options = std::make_shared<ReportOptions>();
  Command command =
      line.add("report", "Write one HTML page that shows a plan, its step and a run of it");
  command.positional("plan", options->file, "plan file, or another stack's configuration")
      .is_path()
      .takes_json();
  add_cluster_options(command, options->plan);
  command.option("-o,--out", options->out, "write the page to this file")
      .is_path()
      .option("--measured", options->measured,
              "trace of a run of this plan (`meshplan run --trace`), to be laid beside the "
              "prediction")
      .is_path();
  add_bars_option(command, options->bars);
  command.option("--memory-reserve", options->memory_reserve, kMemoryReserveHelp)
      .flag("--json", options->json, "print what the page shows, for programs")
      .flag("--schema", options->schema, "print the JSON Schema of that")
      .group("The search")
      .flag("--search", options->search,
            "search for the plan's work as `meshplan plan` does, and show what it finds");
  add_search_options(command, options->space);
  command.option("-j,--threads", options->threads,
                 "threads of the search, at most one a core; 0 = all cores");
  command.group("Of another stack");
  add_foreign_plan_options(command, options->plan);
  command
      .examples(
          "  meshplan report plan.json --out report.html\n"
          "  meshplan report plan.json --search --out report.html\n"
          "  meshplan report plan.json --measured trace.json --out report.html\n"
          "The page needs no network and no other file: it opens from disk, and can be mailed.\n"
          "Exit code 3: the plan does not fit into memory (the page is written all the same).")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
