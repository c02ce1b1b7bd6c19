#include "requests/validate_request.hpp"

#include <memory>

#include "core/error.hpp"
#include "options/inputs.hpp"
#include "process/files.hpp"
#include "reports/adjustment_report.hpp"

namespace meshplan::cli {
namespace {

constexpr const char* kAdjustedRowsHelp =
    "correct the rows of its cluster, software, model and precision by measured runs: a file of "
    "`meshplan adjust`";

}  // namespace

void add_validate_request(Command& command, ValidateRequest& request) {
  command.option("--table", request.table, "measured runs, CSV, one a line")
      .is_path()
      .option(
          "--releases", request.releases,
          "releases of the rows' software, CSV: id,software,release; as a column release of the "
          "table")
      .is_path()
      .option("--constants", request.constants, "constants file instead of the built-in one")
      .is_path()
      .option("--adjusted", request.adjusted, kAdjustedRowsHelp)
      .is_path()
      .takes_json()
      .option("--threads", request.threads, "0 = as many as the machine has cores");
}

sim::ForEach for_each_on(const planner::ParallelFor& parallel_for) {
  return [parallel_for](std::size_t count, const std::function<void(std::size_t)>& body) {
    parallel_for.run(count, [&](std::size_t i, int /*worker*/) { body(i); });
  };
}

sim::PreparedTable load_table(const ValidateRequest& request, const sim::ForEach& each) {
  if (!request.table)
    throw ConfigError("validate needs --table FILE.csv, a table of measured runs");
  std::vector<sim::PublishedRow> rows =
      sim::parse_published_table(read_file(*request.table), *request.table);
  if (request.releases) sim::take_releases(read_file(*request.releases), *request.releases, rows);
  if (request.users_own)
    for (sim::PublishedRow& row : rows) row.run.undated = false;
  return {std::move(rows), each};
}

std::vector<sim::ConstantRecord> load_constants(const ValidateRequest& request) {
  return request.constants ? sim::parse_constants(read_file(*request.constants), *request.constants)
                           : sim::fitted_constants();
}

reports::ValidationReport report_of(const sim::PreparedTable& table,
                                    const std::vector<sim::ConstantRecord>& constants,
                                    const sim::ForEach& each, const sim::Adjustment* adjustment) {
  reports::ValidationReport report{.rows = table.rows(),
                                   .predictions = table.predict(constants, each)};
  if (adjustment != nullptr) {
    report.adjusted_by = reports::anchors_in_words(*adjustment);
    report.num_adjusted = table.adjust(*adjustment, report.predictions);
  }
  report.suites = sim::summarize(report.rows, report.predictions);
  report.num_constants = static_cast<int>(sim::constant_members().size());
  return report;
}

Question validate_question(const Threads& threads) {
  const auto request = std::make_shared<ValidateRequest>();
  return {
      .name = "validate",
      .summary = kValidateSummary,
      .declare = [request](Command& command) { add_validate_request(command, *request); },
      .answer =
          [request, threads](const Command&) {
            const auto each = for_each_on(threads(request->threads));
            return reports::to_json(report_of(load_table(*request, each), load_constants(*request),
                                              each, load_adjustment(request->adjusted).get()));
          }};
}

}  // namespace meshplan::cli
