#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program/operator_sample.hpp"
#include "program/samples.hpp"

namespace meshplan::program {

/// Everything that one measuring job saw of a machine: raw, for sim::fit_cluster. Several jobs
/// (other rank counts) give several files, which are fitted together.
struct CalibrationSamples {
  int schema_version = 1;
  std::string hostname;
  std::string processor;
  int ranks = 1;  // of the job
  int cores = 1;  // of the busiest host, that its ranks may run on
  int num_machines = 1;
  double memory_bytes = 0;   // installed, of one host
  double process_bytes = 0;  // resident without any buffer of a program
  double memory_rate = 0;  // bytes/s of one rank copying alone, read plus written; 0 = not measured
  double host_memory_rate = 0;      // of all cores copying at once, sum
  std::vector<std::string> dtypes;  // that operators were measured in
  std::vector<OperatorSample> operators;
  std::vector<CommSample> communication;
  std::vector<LinkSample> links;
};

CalibrationSamples parse_samples(std::string_view text, const std::string& file);
std::string to_json(const CalibrationSamples& samples);

}  // namespace meshplan::program
