// What was measured: samples, traces, logs, constants, tables of published runs.
#include <fmt/format.h>

#include "core/error.hpp"
#include "fuzz/reader.hpp"
#include "fuzz/samples.hpp"
#include "planner/runs/training_log.hpp"
#include "planner/tune/tune_file.hpp"
#include "process/gzip.hpp"
#include "program/calibration/calibration.hpp"
#include "program/certificate/certificate.hpp"
#include "program/trace/chrome_trace.hpp"
#include "program/trace/step_report.hpp"
#include "reports/adjustment_report.hpp"
#include "reports/certificate_report.hpp"
#include "reports/comparison.hpp"
#include "reports/timeline/step_timeline_text.hpp"
#include "reports/tune_report.hpp"
#include "reports/validation/validation_report.hpp"
#include "sim/anchors/adjustment.hpp"
#include "sim/fit/calibration_fit.hpp"
#include "sim/prices/measured_works.hpp"
#include "sim/fit/published_table.hpp"
#include "sim/fit/refine.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::fuzz {
namespace {

Consumer read_samples(const std::string& text) {
  const program::CalibrationSamples samples = program::parse_samples(text, kFile);
  return [samples] { sim::fit_cluster({samples}); };
}

Consumer read_trace(const std::string& text) {
  const program::Trace trace = program::parse_trace(text, kFile);
  return [trace] {
    program::parse_trace(program::to_json(trace), "written");
    program::to_chrome_trace(trace);
    static const program::Trace predicted = sample_trace(false);
    const reports::Comparison comparison = reports::compare(predicted, trace);
    reports::to_text(comparison);
    reports::to_json(comparison);
    if (!trace.spans.empty()) reports::step_timeline_text(trace);
    sim::parse_cluster(sim::to_json(sim::refine(sample_cluster(), {trace}).cluster), "refined");
  };
}

Consumer read_twins(const std::string& text) {
  const std::vector<program::TwinResult> twins = program::parse_twin_results(text, kFile);
  return [twins] {
    const program::Certificate certificate{.twins = twins};
    program::to_json(certificate);
    reports::to_text(certificate);
    program::parse_twin_results(program::to_json(twins), "written");
    program::parse_certificate(program::to_json(certificate), "written");
  };
}

Consumer read_tune_file(const std::string& text) {
  const planner::TuneFile file = planner::parse_tune_file(text, kFile);
  return [file] {
    planner::parse_tune_file(planner::to_json(file), "written");
    const reports::TuneReport report{.candidates = file.candidates, .policy = {}};
    if (file.candidates.empty()) return;
    reports::to_text(report);
    reports::to_json(report);
  };
}

/// Two plans, one of which has run.
std::string tune_seed() {
  planner::TuneFile file{.request = {{"model", "small"}}, .seconds_used = 2, .candidates = {}};
  program::Plan plan = sample_trace(true).plan;
  plan.cluster_json.clear();
  file.candidates.push_back(
      {.plan = plan,
       .rounds = {{.turn = 0, .step_times_s = {0.5, 0.25}}, {.turn = 1, .step_times_s = {0.5}}}});
  file.candidates.push_back({.plan = plan, .rebalanced_from = 0, .failure = "no memory"});
  return planner::to_json(file);
}

Consumer read_log(const std::string& text) {
  program::imbalance_of_log(text, kFile);
  return {};
}

reports::ValidationReport report_of(const sim::PreparedTable& table,
                                    const std::vector<sim::ConstantRecord>& constants) {
  reports::ValidationReport report{.rows = table.rows(),
                                   .predictions = table.predict(constants, sim::one_by_one)};
  report.suites = sim::summarize(report.rows, report.predictions);
  return report;
}

Consumer read_constants(const std::string& text) {
  const std::vector<sim::ConstantRecord> constants = sim::parse_constants(text, kFile);
  return [constants] {
    static const sim::PreparedTable table = prepared(sample_table());
    reports::to_json(report_of(table, constants));
    sim::parse_constants(sim::to_json(constants), "written");
  };
}

Consumer read_table(const std::string& text) {
  const sim::PreparedTable table(sim::parse_published_table(text, kFile), sim::one_by_one);
  const reports::ValidationReport report = report_of(table, sim::fitted_constants());
  return [report] {
    reports::to_json(report);
    reports::to_text(report);
    reports::to_csv(report);
    reports::parts_csv(report);
  };
}

constexpr const char* kExpertsTable =
    "device,dtype,kernels,tokens,hidden,ffn,experts,top_k,etp,ep,time_us\n"
    "h100_sxm,bfloat16,moe_torch_flow_cutlass,1024,4096,2048,256,8,1,128,72.752\n"
    "gb200,fp8,moe_torch_flow_nongated,2048,2688,1856,128,6,1,1,154.1\n";

Consumer read_operators(const std::string& text) {
  const auto rows = sim::parse_measured_works(text, std::string(kFile) + "/moe.csv");
  return [rows] {
    const sim::Cluster cluster = sim::load_cluster_preset("dgx-h100");
    for (const sim::MeasuredWork& row : rows)
      sim::work_seconds(row, cluster, sim::operator_constants());
  };
}

Consumer read_operator_constants(const std::string& text) {
  const auto constants = sim::parse_operator_constants(text, kFile);
  return [constants] { sim::parse_operator_constants(sim::to_json(constants), "written"); };
}

const reports::ValidationReport& sample_report() {
  static const reports::ValidationReport report =
      report_of(prepared(sample_table()), sim::fitted_constants());
  return report;
}

Consumer read_committed(const std::string& text) {
  reports::worse_suites(sample_report(), text, kFile);
  return {};
}

std::vector<std::string> sample_seeds() {
  program::CalibrationSamples job;
  job.hostname = "here";
  job.ranks = job.cores = 2;
  job.memory_bytes = 16e9;
  job.dtypes = {"fp32"};
  for (const sim::MeasuredOperator& measured : sample_cluster().operators)
    job.operators.push_back({.signature = measured.signature,
                             .seconds = measured.seconds,
                             .seconds_busy = measured.seconds_busy,
                             .flops = measured.flops,
                             .bytes = measured.bytes});
  for (const std::int64_t bytes : {8, 65536}) {
    job.communication.push_back({.bytes = bytes, .repeats = 10, .seconds = 1e-5});
    job.links.push_back({.from = 0, .to = 1, .bytes = bytes, .repeats = 10, .seconds = 1e-5});
  }
  job.progress = {{.ranks_on_host = 2,
                   .cores_on_host = 2,
                   .bytes = 65536,
                   .compute_seconds = 0.01,
                   .communication_seconds = 0.01,
                   .together_seconds = 0.015}};
  program::CalibrationSamples gpus = job;
  gpus.device_driven = true;
  gpus.gpus = {{.name = "GPU", .capability = "9.0", .num_units = 132, .memory_bytes = 8e10}};
  gpus.copies = {{.kind = "device_to_host", .bytes = 65536, .seconds = 1e-5}};
  gpus.launch = program::LaunchSample{.device_seconds = 1e-6, .host_seconds = 2e-6};
  return {program::to_json(job), program::to_json(gpus)};
}

std::string twin_seed() {
  const program::Compared loss{.what = "loss",
                               .name = "step 1",
                               .difference = 1e-8,
                               .tolerance = 1e-5,
                               .value = 4,
                               .expected = 4};
  program::Compared gradient = loss;
  gradient.what = "gradient";
  gradient.where = {3, 5};
  gradient.value.reset();
  program::Plan plan = sample_trace(false).plan;
  plan.model_hash.clear();
  plan.cluster_hash.clear();
  const program::TwinResult twin{.plan = plan,
                                 .techniques = {"tp"},
                                 .ranks = 2,
                                 .steps = 2,
                                 .seeds = {7, 8},
                                 .tolerance = {.relative = 1e-5, .derivation = "rounding"},
                                 .compared = {loss, gradient}};
  return program::to_json(std::vector{twin});
}

/// Unpacked no further than a fuzzed input may take memory.
Consumer read_gzip(const std::string& text) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 24;
  const std::string unpacked = cli::gunzip(text, kFile, kMostBytes);
  return [unpacked] {
    if (cli::gunzip(cli::gzip(unpacked), "packed") != unpacked)
      throw InvariantError("what was packed is another text");
  };
}

Consumer read_training_log(const std::string& text) {
  static const program::Plan plan = sample_trace(true).plan;
  planner::parse_training_log(text, kFile, plan);
  return {};
}

std::vector<std::string> training_log_seeds() {
  const auto batch = sample_trace(true).plan.workload.global_batch_size;
  return {fmt::format(" [2026-01-01 00:00:00] iteration       10/    1000 | elapsed time per "
                      "iteration (ms): 1147.6 | global batch size: {:5d} | lm loss: 9.0 |\n",
                      batch),
          "[titan] step:  4  loss:  7.6  memory: 66.91GiB(37.51%)  tps: 10,050  mfu: 13.99%\n",
          "iteration: 2 / 20 | elapsed_time_per_iteration_ms: 6.66K | tokens_per_sec: 630K |\n",
          "epoch=0/micro_step=199/global_step=199, CurrSamplesPerSec=384.0, MemAllocated=6GB\n"};
}

Consumer read_adjustment(const std::string& text) {
  const sim::Adjustment adjustment = sim::parse_adjustment(text, kFile);
  return [adjustment] {
    reports::to_text(adjustment);
    sim::parse_adjustment(sim::to_json(adjustment), "written");
  };
}

/// Two measurements of a row, as if it had taken a tenth longer.
std::string adjustment_seed() {
  const sim::PreparedTable table = prepared(sample_table());
  const sim::RowPrediction row = table.predict_row(0, sim::fitted_constants());
  const double predicted_s = row.prediction->step_time_s;
  const sim::Anchor anchor{.errors = sim::errors_of(*row.prediction, *table.run(0)),
                           .source = "a row",
                           .measured_s = 1.1 * predicted_s,
                           .predicted_s = predicted_s};
  return sim::to_json(sim::Adjustment(sim::anchored_to(*table.run(0)), {anchor, anchor}));
}

Consumer read_kineto(const std::string& text) {
  const planner::KinetoTrace trace = planner::parse_kineto_trace(text, kFile);
  return [trace] {
    static const program::Trace predicted = sample_trace(false);
    const planner::MeasuredRun run = planner::match_kernels(trace, kFile, predicted.plan, 0);
    const reports::Comparison comparison = reports::compare(predicted, run);
    reports::to_text(comparison);
    reports::to_json(comparison);
    program::to_chrome_trace(predicted, run.trace);
  };
}

std::string kineto_seed() {
  return R"({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0},
"traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 0, "dur": 90},
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9,
 "args": {"Input Dims": [[16, 64], [64, 32]]}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2, "dur": 1,
 "args": {"correlation": 5}},
{"ph": "X", "cat": "kernel", "name": "sm90_gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 8,
 "args": {"stream": 7, "correlation": 5}},
{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 9, "ts": 30, "dur": 8,
 "args": {"Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64,
          "dtype": "Float", "Group size": 2, "stream": 9}}]})";
}

std::vector<std::string> log_seeds() {
  program::StepReport report{.step = 1, .loss = 2.5};
  report.experts = program::ExpertReport{.layers = {{.layer = 1, .ep_imbalance = 1.5}}};
  const std::string line = program::to_json_line(report);
  return {line + "\n" + line + "\n", "{\"kind\": \"run\"}\n" + line + "\n"};
}

}  // namespace

std::vector<Reader> measured_readers() {
  return {{"samples", 6, 4, true, read_samples, sample_seeds()},
          {"trace",
           3,
           30,
           true,
           read_trace,
           {without_hashes(program::to_json(sample_trace(true))),
            without_hashes(program::to_json(sample_trace(false)))}},
          {"twins", 3, 4, true, read_twins, {twin_seed()}},
          {"tune", 4, 15, true, read_tune_file, {tune_seed()}},
          {"log", 8, 4, true, read_log, log_seeds()},
          {"training-log", 8, 4, true, read_training_log, training_log_seeds()},
          {"kineto", 6, 4, true, read_kineto, {kineto_seed()}},
          {"gzip", 6, 4, true, read_gzip, {cli::gzip("text"), cli::gzip(log_seeds().front())}},
          {"constants", 3, 30, true, read_constants, {sim::to_json(sim::fitted_constants())}},
          {"operator-constants",
           3,
           30,
           true,
           read_operator_constants,
           {sim::to_json(sim::operator_records())}},
          {"operators", 6, 4, true, read_operators, {kExpertsTable}},
          {"adjustment", 6, 10, true, read_adjustment, {adjustment_seed()}},
          {"published-table", 6, 4, true, read_table, {sample_table()}},
          {"validation-check", 10, 4, true, read_committed, {reports::to_json(sample_report())}}};
}

}  // namespace meshplan::fuzz
