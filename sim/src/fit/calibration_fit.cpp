#include "sim/fit/calibration_fit.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <tuple>

#include "core/error.hpp"
#include "core/units.hpp"
#include "fit/calibration_fit_gpu.hpp"
#include "fit/upper_median.hpp"
#include "prices/operator_table.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::CalibrationSamples;
using program::CommOp;
using program::CommSample;
using program::OperatorSample;
using Jobs = std::vector<CalibrationSamples>;

constexpr double kTeraflop = 1e12;
constexpr double kMostOverhead = 1e4;  // of a progress thread; more is no overhead, but a fault

bool starts_with(const std::string& text, std::string_view prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

template <class Visit>
void each_operator(const Jobs& jobs, Visit visit) {
  for (const CalibrationSamples& job : jobs)
    for (const OperatorSample& sample : job.operators)
      if (sample.seconds > 0) visit(sample, parse_signature(sample.signature));
}

int ranks_per_node(const CalibrationSamples& job) {
  return (job.ranks + job.num_machines - 1) / job.num_machines;
}

// ---------------------------------------------------------------- device

/// The fastest matrix product of each dtype counts as its peak: efficiency is relative to it.
std::map<std::string, double> fitted_peaks(const Jobs& jobs) {
  std::map<std::string, double> peaks;
  each_operator(jobs, [&](const OperatorSample& sample, const SignatureParts& parts) {
    const bool scaled = starts_with(parts.kind, "scaled_linear.");
    if ((!scaled && !starts_with(parts.kind, "linear.")) || sample.flops <= 0) return;
    double& peak = peaks[scaled ? std::string("fp8") : std::string(name_of(parts.dtype))];
    peak = std::max(peak, sample.flops / sample.seconds / kTeraflop);
  });
  if (peaks.empty())
    throw ConfigError(
        "calibration: no sample of a linear operation, so the device's peak is unknown; measure "
        "the "
        "operators of at least one model");
  return peaks;
}

double attention_part(const Jobs& jobs, const Cluster& cluster, bool forward) {
  std::vector<double> parts_of_peak;
  each_operator(jobs, [&](const OperatorSample& sample, const SignatureParts& parts) {
    if (!starts_with(parts.kind, "attention.") || sample.flops <= 0) return;
    if ((parts.kind == "attention.forward") != forward) return;
    parts_of_peak.push_back(sample.flops / sample.seconds / peak_flop_per_s(cluster, parts.dtype));
  });
  const Efficiency standard;
  return std::min(1.0,
                  upper_median(std::move(parts_of_peak),
                               forward ? standard.attention_forward : standard.attention_backward));
}

/// Memory bandwidth of one rank alone, and of a host's cores together.
void fit_memory(const Jobs& jobs, Cluster& cluster) {
  double alone = 0, all = 0;
  for (const CalibrationSamples& job : jobs) {
    alone = std::max(alone, job.memory_rate);
    all = std::max(all, job.host_memory_rate);
  }
  if (alone == 0)  // the fastest operation that only streams
    each_operator(jobs, [&](const OperatorSample& sample, const SignatureParts&) {
      if (sample.flops == 0 && sample.bytes > 0)
        alone = std::max(alone, sample.bytes / sample.seconds);
    });
  constexpr double kPresumed = 10;  // GB/s of one core, where nothing was measured
  cluster.device.memory_gb_per_s = alone > 0 ? alone / kGigabyte : kPresumed;
  cluster.host_memory_gb_per_s =
      all > 0 ? all / kGigabyte : cluster.device.memory_gb_per_s * cluster.cores_per_host;
}

void fit_cpu(const Jobs& jobs, Cluster& cluster) {
  constexpr int kTileRows = 16;  // of an AVX-512 kernel's register block
  constexpr int kTileColumns = 64;
  constexpr double kHalfK = 16;
  constexpr double kHalfStreamKib = 4;
  Device& device = cluster.device;
  device.kind = DeviceKind::Cpu;
  device.peak_tflop_per_s = fitted_peaks(jobs);
  for (const CalibrationSamples& job : jobs) {
    device.name = job.processor;
    device.memory_gib = std::max(device.memory_gib, job.memory_bytes / kGib);
    device.runtime_base_mib = std::max(device.runtime_base_mib, job.process_bytes / kMib);
  }
  fit_memory(jobs, cluster);
  device.efficiency = {.gemm = 1.0,
                       .tile_m = kTileRows,
                       .tile_n = kTileColumns,
                       .half_k = kHalfK,
                       .attention_forward = attention_part(jobs, cluster, true),
                       .attention_backward = attention_part(jobs, cluster, false),
                       .memory = 1.0,
                       .half_stream_kib = kHalfStreamKib};
  double fastest = 1e-6;
  each_operator(jobs, [&](const OperatorSample& sample, const SignatureParts&) {
    fastest = std::min(fastest, sample.seconds);
  });
  device.launch_us = fastest * kMicroseconds;
}

/// What a GPU's peaks and rates are, by the rules of a core; the rest is in calibration_fit_gpu.
void fit_gpu_rates(const Jobs& jobs, Cluster& cluster) {
  cluster.device.peak_tflop_per_s = fitted_peaks(jobs);
  fit_memory(jobs, cluster);
  cluster.host_memory_gb_per_s = 0;  // GPUs share none
  cluster.device.efficiency.attention_forward = attention_part(jobs, cluster, true);
  cluster.device.efficiency.attention_backward = attention_part(jobs, cluster, false);
}

// ---------------------------------------------------------------- fabric

std::vector<TimedMessage> messages_between(const Jobs& jobs, bool same_host) {
  std::vector<TimedMessage> messages;
  for (const CalibrationSamples& job : jobs) {
    // Waits for cores, not for the fabric.
    const bool crowded = !job.device_driven && ranks_per_node(job) > job.cores;
    for (const program::LinkSample& link : job.links)
      if (link.same_host == same_host && link.seconds > 0 && !crowded)
        messages.push_back({static_cast<double>(link.bytes), link.seconds});
  }
  return messages;
}

/// All-reduces of two ranks pass the whole buffer each way in two messages of half its size.
std::vector<TimedMessage> messages_of_all_reduces(const Jobs& jobs) {
  std::vector<TimedMessage> messages;
  for (const CalibrationSamples& job : jobs)
    for (const CommSample& sample : job.communication)
      if (sample.op == CommOp::AllReduce && sample.group_size == 2 && !sample.cold &&
          sample.seconds > 0 && (job.device_driven || sample.ranks_on_host <= sample.cores_on_host))
        messages.push_back({static_cast<double>(sample.bytes) / 2, sample.seconds / 2});
  return messages;
}

FabricLevel level_of(const std::string& name, const AlphaBeta& fitted, int ranks_per_link) {
  constexpr double kFastest = 1e12;  // bytes/s, where only latency was measured
  const double rate = fitted.seconds_per_byte > 0 ? 1 / fitted.seconds_per_byte : kFastest;
  return {.name = name,
          .latency_us = fitted.latency_s * kMicroseconds,
          .link_gb_per_s = rate / kGigabyte,
          .ranks_per_link = ranks_per_link};
}

void fit_fabric(const Jobs& jobs, Cluster& cluster) {
  const bool on_gpus = measured_on_gpus(jobs);
  if (on_gpus) {
    cluster.communication = gpu_communication(jobs);
  } else {
    cluster.communication.needs_host = true;
    cluster.communication.protocols = {Protocol{.name = "mpi"}};
  }
  std::vector<TimedMessage> inside = messages_between(jobs, true);
  if (inside.empty()) inside = messages_of_all_reduces(jobs);
  const std::vector<TimedMessage> between = messages_between(jobs, false);
  if (!inside.empty())
    cluster.fabric.push_back(
        level_of(on_gpus ? gpu_fabric_name(jobs) : "shared-memory", fit_alpha_beta(inside), 1));
  if (!between.empty()) {
    if (!cluster.fabric.empty()) cluster.fabric.back().ranks_per_group = cluster.devices_per_node;
    cluster.fabric.push_back(
        level_of("network", fit_alpha_beta(between), cluster.devices_per_node));
  }
  if (cluster.fabric.empty() && cluster.num_ranks() > 1)
    throw ConfigError(
        fmt::format("calibration: {} ranks, but no sample of a link or of an all-reduce of 2 "
                    "ranks; measure with "
                    "no more ranks than cores, too",
                    cluster.num_ranks()));
}

// ---------------------------------------------------------------- tables

std::vector<MeasuredOperator> operator_table(const Jobs& jobs) {
  std::map<std::string, MeasuredOperator>
      table;  // the fastest of several jobs: less was in the way
  each_operator(jobs, [&](const OperatorSample& sample, const SignatureParts&) {
    MeasuredOperator& entry = table[sample.signature];
    if (entry.seconds > 0 && entry.seconds <= sample.seconds) return;
    entry = {sample.signature, sample.seconds, sample.seconds_busy, sample.flops, sample.bytes};
  });
  std::vector<MeasuredOperator> rows;
  for (auto& [signature, row] : table) rows.push_back(std::move(row));
  return rows;
}

std::vector<MeasuredCollective> collective_table(const Jobs& jobs) {
  using Key = std::tuple<std::string, int, int, bool, std::int64_t>;
  std::map<Key, double> table;  // the fastest of several algorithms and jobs
  const auto add = [&](CommOp op, int group, int on_host, bool cold, std::int64_t bytes,
                       double seconds) {
    if (seconds <= 0) return;
    const auto [entry, fresh] =
        table.try_emplace({std::string(name_of(op)), group, on_host, cold, bytes}, seconds);
    if (!fresh) entry->second = std::min(entry->second, seconds);
  };
  for (const CalibrationSamples& job : jobs) {
    for (const CommSample& sample : job.communication)
      if (sample.group_size <= sample.ranks_on_host)  // the tables are of groups inside a host
        add(sample.op, sample.group_size, sample.ranks_on_host, sample.cold, sample.bytes,
            sample.seconds);
    for (const program::LinkSample& link : job.links)
      if (link.same_host)
        add(CommOp::PointToPoint, 2, ranks_per_node(job), false, link.bytes, link.seconds);
  }
  std::vector<MeasuredCollective> rows;
  for (const auto& [key, seconds] : table) {
    const auto& [op, group, on_host, cold, bytes] = key;
    rows.push_back({op, group, on_host, bytes, seconds, cold});
  }
  return rows;
}

/// A small all-reduce of n ranks on fewer cores waits ceil(log2 n) times for a partner that is not
/// running: what it takes beyond the fabric's latency, per wait.
double fitted_wake_us(const Jobs& jobs, const Cluster& cluster) {
  constexpr std::int64_t kSmall = 4096;
  std::vector<double> wakes;
  for (const CalibrationSamples& job : jobs)
    for (const CommSample& sample : job.communication) {
      const bool crowded =
          sample.ranks_on_host > sample.cores_on_host && sample.group_size > sample.cores_on_host;
      if (sample.op != CommOp::AllReduce || sample.cold || sample.bytes > kSmall || !crowded)
        continue;
      const double waits = std::ceil(std::log2(sample.group_size));
      const double latency = cluster.fabric.empty() ? 0 : cluster.fabric.front().latency_us;
      wakes.push_back(std::max(0.0, sample.seconds * kMicroseconds / waits - latency));
    }
  return upper_median(std::move(wakes), 0);
}

/// What a communication takes more if a progress thread moves it. Beside computation of all ranks
/// (T alone) on their cores, both run at the rate that the cores allow two threads a rank until the
/// shorter one, the computation, is over; then the rest (C, with the overhead) of the communication
/// has a core: together = T / rate + C - T. Zero where nothing of it was measured.
double fitted_progress_overhead(const Jobs& jobs) {
  std::vector<double> overheads;
  for (const CalibrationSamples& job : jobs)
    for (const program::ProgressSample& sample : job.progress) {
      if (sample.ranks_on_host > sample.cores_on_host || sample.communication_seconds <= 0)
        continue;
      const double rate =
          std::min(1.0, static_cast<double>(sample.cores_on_host) / (2.0 * sample.ranks_on_host));
      const double communication =
          sample.together_seconds - sample.compute_seconds / rate + sample.compute_seconds;
      overheads.push_back(std::max(0.0, communication / sample.communication_seconds - 1));
    }
  return upper_median(std::move(overheads), 0);
}

}  // namespace

AlphaBeta fit_alpha_beta(const std::vector<TimedMessage>& messages) {
  require_invariant(!messages.empty(), "a fit needs points");
  // Minimize sum ((a + b m) / t - 1)^2: normal equations with weights 1 / t^2.
  double w = 0, wm = 0, wmm = 0, wt = 0, wmt = 0;
  for (const auto& [m, t] : messages) {
    require_invariant(t > 0, "a message takes time");
    const double weight = 1 / (t * t);
    w += weight;
    wm += weight * m;
    wmm += weight * m * m;
    wt += weight * t;
    wmt += weight * m * t;
  }
  const double determinant = w * wmm - wm * wm;
  if (determinant <= 1e-12 * w * wmm)  // one message size
    return {.latency_s = wt / w, .seconds_per_byte = 0};
  AlphaBeta fitted{.latency_s = (wmm * wt - wm * wmt) / determinant,
                   .seconds_per_byte = (w * wmt - wm * wt) / determinant};
  if (fitted.latency_s < 0) fitted = {.latency_s = 0, .seconds_per_byte = wmt / wmm};
  if (fitted.seconds_per_byte < 0) fitted = {.latency_s = wt / w, .seconds_per_byte = 0};
  return fitted;
}

Cluster fit_cluster(const Jobs& jobs) {
  if (jobs.empty()) throw ConfigError("calibration: no samples were given");
  Cluster cluster;
  cluster.name = jobs.front().hostname;
  for (const CalibrationSamples& job : jobs) {
    cluster.num_nodes = std::max(cluster.num_nodes, job.num_machines);
    cluster.devices_per_node = std::max(cluster.devices_per_node, ranks_per_node(job));
    cluster.cores_per_host = std::max(cluster.cores_per_host, job.cores);
  }
  if (measured_on_gpus(jobs)) {
    fit_gpu_rates(jobs, cluster);
    describe_gpu(jobs, cluster);
    fit_fabric(jobs, cluster);
  } else {
    fit_cpu(jobs, cluster);
    fit_fabric(jobs, cluster);
    cluster.communication.oversubscription_wake_us = fitted_wake_us(jobs, cluster);
    cluster.communication.progress_overhead_percent = static_cast<int>(
        std::lround(100 * std::min(kMostOverhead, fitted_progress_overhead(jobs))));
  }
  cluster.operators = operator_table(jobs);
  cluster.collectives = collective_table(jobs);
  for (const CalibrationSamples& job : jobs)  // the one that timed operators
    if (job.quietness.reference_s > 0 && !job.operators.empty()) {
      cluster.reference = {job.quietness.reference_s, job.quietness.reference_busy_s};
      cluster.noise = {job.quietness.noise, job.quietness.noise_busy};
    }
  // What is written must be readable: nonsense in the samples is an error here.
  return parse_cluster(to_json(cluster), "calibration: the fitted cluster");
}

}  // namespace meshplan::sim
