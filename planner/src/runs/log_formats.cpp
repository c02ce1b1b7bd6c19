// Sources of the formats: Megatron-LM training.py (training_log), torchtitan components/metrics.py
// (MetricsProcessor.log), nanotron logging and trainer.py (train_step_logs), DeepSpeed
// utils/timer.py (ThroughputTimer.stop) and runtime/pipe/engine.py (PipelineEngine.train_batch).
#include <cmath>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "core/units.hpp"
#include "program/trace/saving_fields.hpp"
#include "program/trace/step_report.hpp"
#include "runs/log_line.hpp"

namespace meshplan::planner {
namespace {

using program::Plan;

constexpr double kMostSteps = 1e15;

/// The word after `label`, up to one of `ends`; absent without the label.
std::optional<std::string_view> value_after(std::string_view text, std::string_view label,
                                            std::string_view ends = " \t|,/") {
  const auto found = text.find(label);
  if (found == std::string_view::npos) return std::nullopt;
  const auto begin = text.find_first_not_of(" \t", found + label.size());
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_first_of(ends, begin) - begin);
}

[[noreturn]] void fail(const LogLine& line, std::string_view label, std::string_view value,
                       std::string_view expected) {
  throw ConfigError(fmt::format("{}: {} '{}', expected {}", line.place, label, value, expected));
}

double positive(const LogLine& line, std::string_view label, std::string_view value, double most) {
  const auto number = parse_number(value, 0, most);
  if (!number || *number <= 0) fail(line, label, value, fmt::format("a number up to {:g}", most));
  return *number;
}

std::int64_t step_number(const LogLine& line, std::string_view label, std::string_view value) {
  const auto number = parse_number(value, 0, kMostSteps);
  if (!number || *number != static_cast<double>(static_cast<std::int64_t>(*number)))
    fail(line, label, value, "the number of a step");
  return static_cast<std::int64_t>(*number);
}

std::string without_commas(std::string_view text) {
  std::string digits;
  for (const char c : text)
    if (c != ',') digits += c;
  return digits;
}

/// @param tolerance  relative: of figures that are rounded
void require_batch(const LogLine& line, std::string_view label, double logged, const Plan& plan,
                   double tolerance = 0) {
  const auto batch = static_cast<double>(plan.workload.global_batch_size);
  if (std::abs(logged - batch) > tolerance * batch)
    fail(line, label, fmt::format("{:g}", logged), fmt::format("{:g} as in the plan", batch));
}

double tokens_of(const Plan& plan) {
  return static_cast<double>(plan.workload.global_batch_size) *
         static_cast<double>(plan.workload.seq_len);
}

/// " iteration       10/    1000 | ... | elapsed time per iteration (ms): 1147.6 | ..."
std::optional<LoggedStep> read_megatron(const LogLine& line, const Plan& plan) {
  constexpr std::string_view kTime = "elapsed time per iteration (ms):";
  constexpr std::string_view kBatch = "global batch size:";
  const auto iteration = value_after(line.text, "iteration ");
  const auto time = value_after(line.text, kTime);
  if (!iteration || !time) return std::nullopt;
  if (const auto batch = value_after(line.text, kBatch))
    require_batch(line, kBatch, positive(line, kBatch, *batch, limits::kTokens), plan);
  return LoggedStep{.step = step_number(line, "iteration", *iteration),
                    .seconds = positive(line, kTime, *time, limits::kSeconds) / 1e3};
}

/// "1.02K" of nanotron's human_format
double with_suffix(const LogLine& line, std::string_view label, std::string_view value) {
  constexpr std::string_view kSuffixes = "KMBT";
  const auto suffix = value.empty() ? std::string_view::npos : kSuffixes.find(value.back());
  if (suffix == std::string_view::npos) return positive(line, label, value, limits::kMagnitude);
  double factor = 1e3;
  for (std::size_t i = 0; i < suffix; ++i) factor *= 1e3;
  return factor * positive(line, label, value.substr(0, value.size() - 1), limits::kMagnitude);
}

/// "iteration: 10 / 100 | ... | elapsed_time_per_iteration_ms: 1.2K | ... | global_batch_size: 8"
std::optional<LoggedStep> read_nanotron(const LogLine& line, const Plan& plan) {
  constexpr std::string_view kTime = "elapsed_time_per_iteration_ms:";
  constexpr std::string_view kBatch = "global_batch_size:";
  constexpr double kRounded = 0.006;  // three digits
  const auto iteration = value_after(line.text, "iteration:");
  const auto time = value_after(line.text, kTime);
  if (!iteration || !time) return std::nullopt;
  if (const auto batch = value_after(line.text, kBatch))
    require_batch(line, kBatch, with_suffix(line, kBatch, *batch), plan, kRounded);
  const double seconds = with_suffix(line, kTime, *time) / 1e3;
  if (seconds > limits::kSeconds) fail(line, kTime, *time, "a time");
  return LoggedStep{.step = step_number(line, "iteration", *iteration), .seconds = seconds};
}

/// "step: 10  loss:  7.1  grad_norm:  1.2  memory: 40.1GiB(50.6%)  tps: 7,012  tflops: ..."; tokens
/// a second of one device
std::optional<LoggedStep> read_torchtitan(const LogLine& line, const Plan& plan) {
  const auto loss = line.text.find("loss:");
  const auto step = value_after(std::string_view(line.text).substr(0, loss), "step:");
  constexpr std::string_view kBlanks = " \t";  // the number itself has commas
  auto rate = value_after(line.text, "tps:", kBlanks);
  if (!rate) rate = value_after(line.text, "wps:", kBlanks);  // until 2024
  if (loss == std::string::npos || !step || !rate) return std::nullopt;
  const std::string number = without_commas(*rate);
  const double tokens_per_s = positive(line, "tps:", number, limits::kMagnitude);
  return LoggedStep{.step = step_number(line, "step:", without_commas(*step)),
                    .seconds = tokens_of(plan) / (tokens_per_s * plan.parallel.world_size())};
}

/// "epoch=0/micro_step=2000/global_step=2000, RunningAvgSamplesPerSec=..., CurrSamplesPerSec=..."
std::optional<LoggedStep> read_deepspeed(const LogLine& line, const Plan& plan) {
  constexpr std::string_view kRate = "CurrSamplesPerSec=";
  const auto step = value_after(line.text, "global_step=");
  const auto rate = value_after(line.text, kRate);
  if (!step || !rate) return std::nullopt;
  return LoggedStep{.step = step_number(line, "global_step=", *step),
                    .seconds = static_cast<double>(plan.workload.global_batch_size) /
                               positive(line, kRate, *rate, limits::kMagnitude)};
}

/// "steps: 20 loss: 2.3456 iter time (s): 1.234 samples/sec: 51.864": of its pipelines
std::optional<LoggedStep> read_deepspeed_pipeline(const LogLine& line, const Plan& /*plan*/) {
  constexpr std::string_view kSeconds = "iter time (s):";
  const auto step = value_after(line.text, "steps:");
  const auto seconds = value_after(line.text, kSeconds);
  if (!step || !seconds) return std::nullopt;
  return LoggedStep{.step = step_number(line, "steps:", *step),
                    .seconds = positive(line, kSeconds, *seconds, limits::kSeconds)};
}

/// {"kind": "step", ...} of `meshplan run --log`
std::optional<LoggedStep> read_own(const LogLine& line, const Plan& /*plan*/) {
  if (!line.text.starts_with("{\"kind\":\"step\"")) return std::nullopt;
  const program::StepReport report = program::parse_step_report(line.text, line.place);
  if (!(report.seconds > 0 && report.seconds <= limits::kSeconds))
    fail(line, "step_time_s", fmt::format("{:g}", report.seconds), "a time");
  return LoggedStep{.step = report.step, .seconds = report.seconds};
}

/// The number after `label`, which ends where it does: "71.25" of "71.25GiB(89.5%)".
double number_after(std::string_view text, std::string_view label) {
  const auto value = value_after(text, label, " \t|,/GM(");
  return value ? parse_number(*value, 0, limits::kBytes).value_or(0) : 0;
}

}  // namespace

/// Megatron-LM training/utils.py, report_memory: "memory (MB) | ... | max allocated: 5678.9 | ... |
/// max reserved: 7000.0", of 2^20 bytes. torchtitan: "memory: 71.25GiB(89.5%)", max_reserved.
/// nanotron trainer.py: "Peak allocated: 4567.89MiB Peak reserved: 5000.00MiB" (with or without the
/// colons). DeepSpeed runtime/utils.py, see_memory_usage: "MA 12.3 GB Max_MA 22.4 GB CA 25.0 GB
/// Max_CA 25 GB", of 2^30 bytes.
LoggedMemory memory_of(const LogLine& line) {
  const std::string_view text = line.text;
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (has("memory (MB)"))
    return {.allocated = number_after(text, "max allocated:") * kMib,
            .reserved = number_after(text, "max reserved:") * kMib};
  if (has("Max_MA"))
    return {.allocated = number_after(text, "Max_MA") * kGib,
            .reserved = number_after(text, "Max_CA") * kGib};
  if (has("Peak allocated") && has("Peak reserved")) {
    const auto peak = [&](const std::string& what) {
      const double plain = number_after(text, what + ":");
      return (plain > 0 ? plain : number_after(text, what)) * kMib;
    };
    return {.allocated = peak("Peak allocated"), .reserved = peak("Peak reserved")};
  }
  if (has("GiB(") && has("loss:")) return {.reserved = number_after(text, "memory:") * kGib};
  return {};
}

std::optional<program::SavingReport> saving_of(const LogLine& line) {
  if (!line.text.starts_with("{\"kind\":\"summary\"")) return std::nullopt;
  const Json summary = parse_json(line.text, line.place);
  const auto saving = summary.find("saving");
  if (saving == summary.end()) return std::nullopt;
  return read_json<program::SavingReport>(saving->dump(), line.place + ": saving");
}

const std::vector<LogFormat>& log_formats() {
  static const std::vector<LogFormat> kFormats = {
      {"meshplan run --log", read_own}, {"Megatron-LM", read_megatron},
      {"nanotron", read_nanotron},      {"torchtitan", read_torchtitan},
      {"DeepSpeed", read_deepspeed},    {"DeepSpeed's pipelines", read_deepspeed_pipeline}};
  return kFormats;
}

}  // namespace meshplan::planner
