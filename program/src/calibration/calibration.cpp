#include "program/calibration/calibration.hpp"

#include <fmt/format.h>

#include "calibration/comm_names.hpp"
#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "program/cost/cost.hpp"

namespace meshplan {

namespace program {

template <class Visitor>
void fields(Visitor& v, OperatorSample& s) {
  v.required("signature", s.signature, "kind, phase, dtype and local shape");
  v.required("seconds", s.seconds, "first quartile of undisturbed timings, alone",
             between(0, limits::kSeconds));
  v.optional("seconds_busy", s.seconds_busy, "the same while every core ran it",
             between(0, limits::kSeconds));
  v.optional("spread", s.spread, "(p90 - p10) / median", at_least(0));
  v.optional("flops", s.flops, "executed", at_least(0));
  v.optional("bytes", s.bytes, "fewest that must move", between(0, limits::kBytes));
}

template <class Visitor>
void fields(Visitor& v, CommSample& s) {
  v.required("op", s.op, "operation");
  v.required("group_size", s.group_size, "ranks that took part", between(1, limits::kRanks));
  v.required("ranks_on_host", s.ranks_on_host, "ranks of the job on the busiest host",
             between(1, limits::kRanks));
  v.required("cores_on_host", s.cores_on_host, "cores that these may run on",
             between(1, limits::kRanks));
  v.required("bytes", s.bytes, "that one rank passes in", between(0, limits::kBytes));
  v.required("algorithm", s.algorithm, "that ran");
  v.optional("cold", s.cold, "in place on buffers that no cache holds");
  v.optional("repeats", s.repeats, "timed", at_least(0));
  v.required("seconds", s.seconds, "first quartile, of the slowest rank",
             between(0, limits::kSeconds));
  v.optional("p10_s", s.p10_s, "10th percentile");
  v.optional("p90_s", s.p90_s, "90th percentile");
}

template <class Visitor>
void fields(Visitor& v, LinkSample& s) {
  v.required("from", s.from, "world rank", between(0, limits::kRanks));
  v.required("to", s.to, "world rank", between(0, limits::kRanks));
  v.required("same_host", s.same_host, "whether both run on one machine");
  v.required("bytes", s.bytes, "of the message", between(0, limits::kBytes));
  v.optional("repeats", s.repeats, "timed", at_least(0));
  v.required("seconds", s.seconds, "first quartile, one way", between(0, limits::kSeconds));
  v.optional("p10_s", s.p10_s, "10th percentile");
  v.optional("p90_s", s.p90_s, "90th percentile");
}

template <class Visitor>
void fields(Visitor& v, GpuPeer& p) {
  v.required("pci_bus", p.pci_bus, "of the other GPU");
  v.required("access", p.access, "whether it is reached without host memory");
  v.optional("native_atomics", p.native_atomics, "on its memory: NVLink");
  v.optional("performance_rank", p.performance_rank, "of the link, as the driver ranks it");
}

template <class Visitor>
void fields(Visitor& v, GpuDescription& g) {
  v.required("name", g.name, "of the product");
  v.required("capability", g.capability, "compute capability, as 9.0");
  v.required("num_units", g.num_units, "streaming multiprocessors", between(1, limits::kRanks));
  v.required("memory_bytes", g.memory_bytes, "of the device", between(0, limits::kBytes));
  v.optional("cache_bytes", g.cache_bytes, "L2", between(0, limits::kBytes));
  v.optional("process_bytes", g.process_bytes, "device memory of the process without buffers",
             between(0, limits::kBytes));
  v.optional("pci_bus", g.pci_bus, "address");
  v.optional("pci_link", g.pci_link, "speed and width");
  index_or_minus_one(v, "numa_node", g.numa_node, "of its slot; -1 = not known");
  v.optional("peers", g.peers, "other GPUs of the machine");
}

template <class Visitor>
void fields(Visitor& v, CopySample& s) {
  v.required("kind", s.kind, "host_to_device, device_to_host or device_to_device");
  v.required("bytes", s.bytes, "copied", between(0, limits::kBytes));
  v.required("seconds", s.seconds, "median, on the device", between(0, limits::kSeconds));
}

template <class Visitor>
void fields(Visitor& v, LaunchSample& s) {
  v.optional("device_seconds", s.device_seconds, "of the device per operation in a graph",
             between(0, limits::kSeconds));
  v.optional("queued_seconds", s.queued_seconds, "of the device per operation launched by itself",
             between(0, limits::kSeconds));
  v.optional("host_seconds", s.host_seconds, "of the host to launch one",
             between(0, limits::kSeconds));
}

template <class Visitor>
void fields(Visitor& v, ProgressSample& s) {
  v.required("ranks_on_host", s.ranks_on_host, "of the job", between(1, limits::kRanks));
  v.required("cores_on_host", s.cores_on_host, "that these may run on", between(1, limits::kRanks));
  v.required("bytes", s.bytes, "of the all-reduce", between(0, limits::kBytes));
  v.required("compute_seconds", s.compute_seconds, "median, alone", between(0, limits::kSeconds));
  v.required("communication_seconds", s.communication_seconds, "median, alone",
             between(0, limits::kSeconds));
  v.required("together_seconds", s.together_seconds, "median, until both are done",
             between(0, limits::kSeconds));
}

template <class Visitor>
void fields(Visitor& v, Quietness& q) {
  v.optional("reference_s", q.reference_s, "of the reference product, alone; 0 = not measured",
             between(0, limits::kSeconds));
  v.optional("reference_busy_s", q.reference_busy_s, "while every core ran it",
             between(0, limits::kSeconds));
  v.optional("noise", q.noise, "part that disturbances added to operators of one rank alone",
             at_least(0));
  v.optional("noise_busy", q.noise_busy, "to those of the slowest rank while every core ran them",
             at_least(0));
  v.optional("reference_p10_s", q.reference_p10_s, "10th percentile, alone",
             between(0, limits::kSeconds));
  v.optional("reference_p50_s", q.reference_p50_s, "median, alone", between(0, limits::kSeconds));
  v.optional("samples", q.samples, "of operators and messages", at_least(0));
  v.optional("disturbed", q.disturbed, "samples beside which something else ran", at_least(0));
  v.optional("repeated_visits", q.repeated_visits, "to cases with too few undisturbed samples",
             at_least(0));
  v.optional("other_cores", q.other_cores, "that other processes kept busy", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, CalibrationSamples& s) {
  v.required("schema_version", s.schema_version, "version of this format", between(1, 1));
  v.required("hostname", s.hostname, "of rank 0's machine", of_name());
  v.optional("processor", s.processor, "its model", of_name());
  v.required("ranks", s.ranks, "of the job", between(1, limits::kRanks));
  v.required("cores", s.cores, "that the ranks of the busiest host may run on",
             between(1, limits::kRanks));
  v.optional("num_machines", s.num_machines, "of the job", between(1, limits::kRanks));
  v.optional("memory_bytes", s.memory_bytes, "installed on one host", between(0, limits::kBytes));
  v.optional("process_bytes", s.process_bytes, "resident without any buffer of a program",
             between(0, limits::kBytes));
  v.optional("memory_rate", s.memory_rate, "bytes/s of one rank's copy, read plus written",
             between(0, limits::kBytes));
  v.optional("host_memory_rate", s.host_memory_rate, "of all cores copying at once",
             between(0, limits::kBytes));
  v.optional("dtypes", s.dtypes, "that operators were measured in");
  v.optional("operators", s.operators, "timed operators");
  v.optional("communication", s.communication, "timed collectives");
  v.optional("links", s.links, "timed messages between pairs");
  v.optional("gpus", s.gpus, "of every rank");
  v.optional("copies", s.copies, "timed copies of a GPU");
  v.optional("launch", s.launch, "cost of issuing an operation to a GPU");
  v.optional("progress", s.progress, "communication that a progress thread moved beside work");
  v.optional("device_driven", s.device_driven, "whether NCCL moved the data");
  v.optional("quietness", s.quietness, "of the machine, meanwhile");
}

CalibrationSamples parse_samples(std::string_view text, const std::string& file) {
  auto samples = read_json<CalibrationSamples>(text, file);
  for (std::size_t i = 0; i < samples.operators.size(); ++i) {
    try {
      check_signature(samples.operators[i].signature);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: operators[{}].signature: {}", file, i, error.what()));
    }
  }
  return samples;
}

std::string to_json(const CalibrationSamples& samples) {
  return write_json(samples).dump(1) + "\n";
}

}  // namespace program
}  // namespace meshplan
