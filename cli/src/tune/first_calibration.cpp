#include "tune/first_calibration.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "models/model_spec.hpp"
#include "options/inputs.hpp"
#include "process/exit_codes.hpp"
#include "program/plan/plan_names.hpp"
#include "ranks/calibration_jobs.hpp"
#include "ranks/devices.hpp"
#include "runtime/os/host_info.hpp"
#include "sim/fit/calibration_fit.hpp"

namespace meshplan::cli {
namespace {

constexpr double kSecondsPerOperator = 0.005;
constexpr double kOperatorSeconds = 60;  // on GPUs, for all
constexpr double kCommunicationSeconds = 4;
constexpr std::int64_t kLargestMicroBatch = 8;

std::vector<std::int64_t> micro_batches(const FirstCalibration& calibration) {
  if (!calibration.micro_batches.empty()) return calibration.micro_batches;
  const PlanOptions& plan = calibration.plan;
  if (plan.constraints.micro_batch_size) return {*plan.constraints.micro_batch_size};
  std::vector<std::int64_t> sizes;
  const std::int64_t most = std::min(plan.global_batch.value_or(1), kLargestMicroBatch);
  for (std::int64_t size = 1; size <= most; size *= 2) sizes.push_back(size);
  return sizes;
}

std::vector<std::string> model_flags(const PlanOptions& plan) {
  std::vector<std::string> flags{"--model", *plan.model};
  if (plan.reading.assume) flags.insert(flags.end(), {"--assume", *plan.reading.assume});
  if (plan.reading.no_mtp) flags.emplace_back("--no-mtp");
  if (plan.reading.no_dropout) flags.emplace_back("--no-dropout");
  if (plan.reading.text_only) flags.emplace_back("--text-only");
  return flags;
}

}  // namespace

int ranks_here(const FirstCalibration& calibration) {
  if (calibration.plan.ranks) return *calibration.plan.ranks;
  return choose_device(calibration.device) == DeviceKind::Cuda
             ? num_gpus()
             : static_cast<int>(runtime::detect_host().cores.size());
}

std::variant<sim::Cluster, int> calibrate_first(const FirstCalibration& calibration) {
  const PlanOptions& plan = calibration.plan;
  if (!plan.model) throw ConfigError("--model is missing; for example --model tiny-llama");
  const models::ModelSpec model = load_model(*plan.model, plan.reading).spec;
  const bool on_gpus = choose_device(calibration.device) == DeviceKind::Cuda;
  const int ranks = ranks_here(calibration);
  if (ranks < 1) throw ConfigError(fmt::format("--gpus {}: must be at least 1", ranks));
  const program::Precision precision =
      plan.precision.value_or(on_gpus ? program::Precision::BF16 : program::Precision::F32);
  const auto rank = [&](const std::string& samples_file, bool operators) {
    std::vector<std::string> words{"calibrate"};
    const auto add = [&](const std::vector<std::string>& more) {
      words.insert(words.end(), more.begin(), more.end());
    };
    add(model_flags(plan));
    add({"--seq-len",
         std::to_string(plan.seq_len.value_or(model.max_positions)),
         "--global-batch",
         std::to_string(plan.global_batch.value_or(1)),
         "--precision",
         std::string(name_of(precision)),
         "--micro-batches",
         fmt::format("{}", fmt::join(micro_batches(calibration), ",")),
         "--ranks",
         std::to_string(ranks),
         "--max-tp",
         std::to_string(plan.constraints.tp.value_or(ranks)),
         "--seconds-per-operator",
         fmt::format("{}", kSecondsPerOperator),
         "--operator-seconds",
         fmt::format("{}", kOperatorSeconds),
         "--communication-seconds",
         fmt::format("{}", kCommunicationSeconds),
         "--hang-timeout",
         fmt::format("{}", calibration.hosts.hang_timeout_s),
         "--samples-out",
         samples_file});
    if (operators) words.emplace_back("--operators");
    add(calibration.device_flags);
    return words;
  };
  const CalibrationJobs jobs = run_calibration_jobs({ranks}, calibration.hosts, rank);
  if (jobs.exit_code != kDone) return jobs.exit_code;
  return sim::fit_cluster(jobs.samples);
}

}  // namespace meshplan::cli
