// What a supervisor says: a line on standard error, in the run's log, and in the job's record.
#pragma once

#include <optional>
#include <string>

#include "commands/run/elastic_layout.hpp"
#include "commands/run/job_record.hpp"

namespace meshplan::cli {

/// Seconds since 1970.
double wall_s();

/// A job that begins.
struct JobBegin {
  const ElasticLayout& layout;
  const ElasticRun& run;
  const runtime::Nodes& nodes;
  std::string plan_file;      // that the run was started with
  std::string job_plan_file;  // that it runs
  int num_steps = 0;
  int step = 0;  // done before
};

class JobLog {
 public:
  /// @param folder  of the checkpoints, made if it is missing
  /// @param run_log  the file of --log
  JobLog(std::string folder, bool quiet, std::optional<std::string> run_log);

  /// The record of the supervisor before this one; nothing for a new run or a damaged file.
  const std::optional<JobRecord>& earlier() const { return earlier_; }

  /// A line of what is done, and why.
  void say(const std::string& text);
  void begin(const JobBegin& job);
  /// Written once a second at most. @param step_time_s  mean of the last steps
  void step(int step, double step_time_s, const runtime::Nodes& nodes);
  void fail(int step, const std::string& cause, const runtime::Nodes& nodes);
  void set_state(const std::string& state, const runtime::Nodes& nodes);

 private:
  /// A full disk does not end the run: the record is missing until the next one can be written.
  void write();

  std::string folder_;
  bool quiet_;
  std::optional<std::string> run_log_;
  std::optional<JobRecord> earlier_;
  JobRecord record_;
};

}  // namespace meshplan::cli
