// Spans of a step, predicted or measured, in one schema keyed by the same operation ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/calibration/machine_speed.hpp"
#include "program/program.hpp"

namespace meshplan::program {

struct Span {
  int rank = 0;
  int step = 0;
  Lane lane = Lane::Compute;
  Phase phase = Phase::Forward;
  std::string name;
  std::uint64_t id = 0;  // OperationInstance::id
  std::optional<int> microbatch;
  std::optional<int> layer;  // of the model
  std::string group;         // of a communication span: "tp", "pp", "dp", ...; empty for compute
  std::optional<int> peer;   // world rank of a point-to-point peer
  double start_s = 0;        // since the step's common start, on rank 0's clock
  double end_s = 0;
  std::int64_t bytes = 0;
  double flops = 0;
};

/// The span of an instance on world rank `rank`, complete but for its times.
Span make_span(const Program& program, const OperationInstance& instance, const Mesh& mesh,
               int rank);

struct Trace {
  int schema_version = 1;
  bool measured = false;
  std::string source;  // "simulated" or host, date
  Plan plan;
  int world_size = 1;
  std::vector<double>
      step_times_s;  // every step that was timed without tracing (measured), or the period
  double tracing_overhead = 0;   // traced step time / untraced - 1
  double peak_memory_bytes = 0;  // largest rank
  std::vector<double> losses;
  std::optional<MachineSpeed> machine;  // measured, of ranks on processor cores
  std::vector<Span> spans;              // of the traced step(s), all ranks
};

/// @throws ConfigError naming file, path, value and rule
Trace parse_trace(std::string_view text, const std::string& file);
std::string to_json(const Trace& trace);

}  // namespace meshplan::program
