// What a supervisor keeps of its job in a file beside the checkpoints, for `meshplan status` and
// for the supervisor that goes on after it was killed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/elastic/nodes.hpp"

namespace meshplan::cli {

struct JobFailure {
  double at_s = 0;  // seconds since 1970
  int step = 0;     // the last one that was done before it
  std::string cause;
};

struct JobEvent {
  double at_s = 0;  // seconds since 1970
  std::string text;
};

struct JobRecord {
  int schema_version = 1;
  std::string state = "running";  // or: waiting, done, interrupted, failed
  std::string host;               // of the supervisor
  int supervisor = 0;             // its process
  double written_s = 0;           // seconds since 1970
  std::string plan;               // the file that the run was started with
  std::string job_plan;           // the file of the plan that runs
  std::string layout;             // of the plan that runs: "tp2 dp3 mbs1"
  int ranks = 0;
  int least_ranks = 1;
  int most_ranks = 1;
  int step = 0;            // the last one that is done
  int num_steps = 0;       // of the whole run
  double step_time_s = 0;  // of the last steps with this layout; 0 = not known yet
  std::vector<runtime::JobNode> nodes;
  std::vector<JobFailure> failures;  // the newest kMostKept
  std::vector<JobEvent> events;      // likewise

  static constexpr std::size_t kMostKept = 100;
};

/// The file of a checkpoint folder's job.
std::string job_file(const std::string& folder);
/// @returns nothing if there is no such file. @throws ConfigError if it is damaged
std::optional<JobRecord> read_job(const std::string& folder);
/// Replaces the file as a whole. @throws IoError
void write_job(const std::string& folder, const JobRecord& job);
/// The record as JSON, and as a table for people.
std::string to_json(const JobRecord& job);
/// @param now_s  seconds since 1970
std::string to_text(const JobRecord& job, const std::string& folder, double now_s);

}  // namespace meshplan::cli
