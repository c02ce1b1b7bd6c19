// meshplan validate: predictions beside published measurements.
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "options/inputs.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/threads.hpp"
#include "reports/validation/anchors_report.hpp"
#include "reports/validation/operator_report.hpp"
#include "reports/validation/validation_report.hpp"
#include "requests/validate_request.hpp"

namespace meshplan::cli {
namespace {

struct ValidateOptions {
  ValidateRequest request;
  std::optional<std::string> csv;
  std::optional<std::string> parts;
  std::optional<std::string> fit;
  std::optional<std::string> left_out_name;
  std::optional<sim::LeaveOut> leave_one_out;
  std::optional<std::string> check;
  std::optional<std::string> explain;
  std::optional<std::string> operators;
  std::optional<int> anchors;
  bool ablate = false;
  bool json = false;
};

void print_explained(const sim::PreparedTable& table, const reports::ValidationReport& report,
                     const sim::Constants& constants, const std::string& id) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    known.push_back(report.rows[i].id);
    if (report.rows[i].id != id) continue;
    output("{}", reports::explain_text(report.rows[i], report.predictions[i],
                                       table.terms(i, report.predictions[i]),
                                       table.timed_shares(i, constants)));
    return;
  }
  throw ConfigError(fmt::format("--explain: {}", unknown_name_message("row", id, known)));
}

int print_worse(const std::vector<std::string>& worse) {
  for (const std::string& sentence : worse) output(stderr, "meshplan: {}\n", sentence);
  return worse.empty() ? kDone : kFailed;
}

/// Formulas of single operators beside the tables in a folder; files that it lacks are left out.
int run_operators(const ValidateOptions& options) {
  const sim::ForEach each = for_each_on(on_threads(options.request.threads));
  std::vector<sim::WorkTable> tables;
  for (const std::string& name : sim::operator_files()) {
    const std::string path = *options.operators + "/" + name;
    if (!std::filesystem::exists(path)) continue;
    tables.push_back({name, sim::parse_measured_works(read_file(path), path)});
  }
  if (tables.empty())
    throw ConfigError(fmt::format("--operators: {} holds none of {}", *options.operators,
                                  fmt::join(sim::operator_files(), ", ")));
  std::vector<sim::ConstantRecord> records = sim::operator_records();
  if (options.request.constants)
    records = sim::parse_operator_constants(read_file(*options.request.constants),
                                            *options.request.constants);
  if (options.fit) {
    records = sim::fit_operators(tables, records, each);
    write_file(*options.fit, sim::to_json(records));
  }
  const sim::OperatorReport report = sim::validate_operators(tables, records, each);
  output("{}", options.json ? reports::to_json(report) : reports::to_text(report));
  if (!options.check) return kDone;
  return print_worse(reports::worse_operators(report, read_file(*options.check), *options.check));
}

/// Rows that predict each other, in the fit or left out of it.
int run_anchors(const ValidateOptions& options, const sim::PreparedTable& table,
                const std::vector<sim::RowPrediction>& predictions, const sim::ForEach& each) {
  const reports::AnchorsReport report{
      .num_anchors = *options.anchors,
      .suites = sim::validate_anchors(table, predictions, *options.anchors, each)};
  if (options.csv) write_file(*options.csv, reports::to_csv(report));
  output("{}", options.json ? reports::to_json(report) : reports::to_text(report));
  return kDone;
}

int run(ValidateOptions options) {
  if (options.operators) {
    if (options.request.table) throw ConfigError("validate takes --table or --operators, not both");
    return run_operators(options);
  }
  for (const auto by : {sim::LeaveOut::Model, sim::LeaveOut::Cluster, sim::LeaveOut::Software})
    if (options.left_out_name == sim::name_of(by)) options.leave_one_out = by;
  const sim::ForEach each = for_each_on(on_threads(options.request.threads));
  const sim::PreparedTable table = load_table(options.request, each);
  std::vector<sim::ConstantRecord> records = load_constants(options.request);
  if (options.fit) {
    const sim::Fit fit = sim::fit_constants(table, records, {}, each);
    write_file(*options.fit, sim::to_json(fit.constants));
    output(stderr, "fitted in {} rounds: loss {:.5f} -> {:.5f}\n", fit.rounds, fit.loss_before,
           fit.loss_after);
    records = fit.constants;
  }
  const auto adjustment = load_adjustment(options.request.adjusted);
  if (adjustment && (options.anchors || options.leave_one_out || options.ablate))
    throw ConfigError(
        "--adjusted: corrects predictions of the table as it is; leave out --anchors, "
        "--leave-one-out and --ablate");
  if (options.anchors && !options.leave_one_out)
    return run_anchors(options, table, table.predict(records, each), each);
  const auto report = report_of(table, records, each, adjustment.get());
  if (options.csv && !options.anchors) write_file(*options.csv, reports::to_csv(report));
  if (options.parts && !options.leave_one_out)
    write_file(*options.parts, reports::parts_csv(report));
  if (options.explain) {
    print_explained(table, report, sim::constants_of(records), *options.explain);
    return kDone;
  }
  if (options.leave_one_out) {
    const auto groups = sim::leave_one_out(table, records, *options.leave_one_out, each);
    if (!options.anchors)
      output("{}\n", reports::leave_one_out_text(table.rows(), *options.leave_one_out, groups));
    if (options.parts)
      write_file(*options.parts,
                 reports::parts_csv(reports::left_out_report(table.rows(), groups)));
    if (options.anchors)
      return run_anchors(options, table, reports::left_out_report(table.rows(), groups).predictions,
                         each);
  }
  if (options.ablate)
    output("{}\n", reports::ablation_text(report.suites, sim::ablate(table, records, each)));
  output("{}", options.json ? reports::to_json(report) : reports::to_text(report));
  if (!options.check) return kDone;
  return print_worse(reports::worse_suites(report, read_file(*options.check), *options.check));
}

}  // namespace

void add_validate_command(CommandLine& line) {
  const auto options = std::make_shared<ValidateOptions>();
  Command command = line.add("validate", kValidateSummary);
  add_validate_request(command, options->request);
  command
      .option("--operators", options->operators,
              "instead of --table: a folder of measured operators (gemm.csv, attention.csv, "
              "mla.csv, moe.csv, nccl.csv)")
      .is_path()
      .option("--csv", options->csv, "write one line a row: predicted, measured, error")
      .is_path()
      .option("--parts", options->parts,
              "write where each predicted step's time goes, CSV; with --leave-one-out of the rows "
              "left out")
      .is_path()
      .option("--fit", options->fit,
              "fit the constants on the table, or the operators', and write them to this file")
      .is_path()
      .choice("--leave-one-out", options->left_out_name, {"model", "cluster", "software"},
              "fit without each group in turn and predict it (minutes)")
      .option(
          "--anchors", options->anchors,
          "for how many measured runs to anchor the others of their cluster, software, release, "
          "model and precision: errors and intervals before and after, every choice in turn; "
          "with --leave-one-out of the rows left out")
      .between(1, 2)
      .flag("--ablate", options->ablate, "fit without each constant in turn (minutes)")
      .option("--explain", options->explain,
              "print the terms of this row's step, their intervals, and what to measure")
      .option("--check", options->check,
              "fail if a suite, or a device's operators, are half a point worse than in this file, "
              "written with --json")
      .is_path()
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan validate --table published.csv --csv predicted.csv\n"
          "  meshplan validate --table published.csv --anchors 1 --leave-one-out model\n"
          "  meshplan validate --operators measured/")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
