#include "commands/run/job_log.hpp"

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "output/output.hpp"
#include "output/run_log.hpp"
#include "planner/elastic/replan.hpp"
#include "reports/run_report.hpp"
#include "runtime/os/host_info.hpp"

namespace meshplan::cli {

double wall_s() {
  using std::chrono::duration;
  return duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

namespace {

/// A supervisor that was killed may have left a part of its record.
void remove_unfinished(const std::string& folder) {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("job") && name.ends_with(".tmp"))
      std::filesystem::remove(entry.path(), failed);
  }
}

}  // namespace

JobLog::JobLog(std::string folder, bool quiet, std::optional<std::string> run_log)
    : folder_(std::move(folder)), quiet_(quiet), run_log_(std::move(run_log)) {
  std::error_code failed;
  std::filesystem::create_directories(folder_, failed);
  remove_unfinished(folder_);
  try {
    earlier_ = read_job(folder_);
  } catch (const ConfigError&) {  // it is only told by whom hosts have failed before
  }
  record_.host = runtime::detect_host().hostname;
  record_.supervisor = ::getpid();
}

void JobLog::say(const std::string& text) {
  const std::string line = printable_line(text);
  if (!quiet_) output(stderr, "meshplan: elastic: {}\n", line);
  record_.events.push_back({wall_s(), line});
  if (record_.events.size() > JobRecord::kMostKept) record_.events.erase(record_.events.begin());
  write();
  if (!run_log_) return;
  try {
    RunLog::beside_writer(*run_log_).write(reports::elastic_line(record_.step, line));
  } catch (const std::exception&) {  // there is no log yet, or the disk is full
  }
}

void JobLog::begin(const JobBegin& job) {
  record_.state = "running";
  record_.plan = job.plan_file;
  record_.job_plan = job.job_plan_file;
  record_.layout = planner::layout_text(job.layout.plan);
  record_.ranks = job.layout.ranks();
  record_.least_ranks = job.run.range.least;
  record_.most_ranks = job.run.range.most;
  record_.step = job.step;
  record_.num_steps = job.num_steps;
  record_.step_time_s = 0;
  record_.nodes = job.nodes.all();
  write();
}

void JobLog::step(int step, double step_time_s, const runtime::Nodes& nodes) {
  record_.step = step;
  record_.step_time_s = step_time_s;
  record_.nodes = nodes.all();
  if (wall_s() - record_.written_s >= 1) write();
}

void JobLog::fail(int step, const std::string& cause, const runtime::Nodes& nodes) {
  record_.step = step;
  record_.nodes = nodes.all();
  record_.failures.push_back({.at_s = wall_s(), .step = step, .cause = printable_line(cause)});
  if (record_.failures.size() > JobRecord::kMostKept)
    record_.failures.erase(record_.failures.begin());
  say(fmt::format("failed after step {}: {}", step, cause));
}

void JobLog::set_state(const std::string& state, const runtime::Nodes& nodes) {
  record_.state = state;
  record_.nodes = nodes.all();
  write();
}

void JobLog::write() {
  record_.written_s = wall_s();
  try {
    write_job(folder_, record_);
  } catch (const IoError&) {
  }
}

}  // namespace meshplan::cli
