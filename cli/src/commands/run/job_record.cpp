#include "commands/run/job_record.hpp"

#include <algorithm>
#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "core/printable.hpp"
#include "planner/search/reasons.hpp"
#include "process/files.hpp"
#include "reports/table.hpp"

namespace meshplan::runtime {

template <class Visitor>
void fields(Visitor& v, SlowSlot& slow) {
  v.required("slot", slow.slot, "of the node's ranks in order", at_least(0));
  v.required("times", slow.times, "as long as others it computes", at_least(1));
}

template <class Visitor>
void fields(Visitor& v, JobNode& node) {
  v.required("name", node.name, "host; empty: the supervisor's machine");
  v.required("slots", node.slots, "ranks that it takes", at_least(0));
  v.required("state", node.state, "how it is used");
  v.optional("lost_slots", node.lost_slots, "of the slots: not used before retry_at_s",
             at_least(0));
  v.optional("retry_at_s", node.retry_at_s, "when it is tried again, seconds since 1970");
  v.optional("failures", node.failures, "when it failed, seconds since 1970");
  v.optional("last_failure", node.last_failure, "why");
  v.optional("slow", node.slow, "slots that compute more slowly than others");
  v.optional("slow_until_s", node.slow_until_s, "when they are taken for quick again");
  v.optional("slowed", node.slowed, "when slots were found slow, seconds since 1970");
}

}  // namespace meshplan::runtime

namespace meshplan::cli {

template <class Visitor>
void fields(Visitor& v, JobFailure& failure) {
  v.required("at_s", failure.at_s, "seconds since 1970");
  v.required("step", failure.step, "the last step that was done", at_least(0));
  v.required("cause", failure.cause, "what failed");
}

template <class Visitor>
void fields(Visitor& v, JobEvent& event) {
  v.required("at_s", event.at_s, "seconds since 1970");
  v.required("text", event.text, "what was done, and why");
}

template <class Visitor>
void fields(Visitor& v, JobRecord& job) {
  v.required("schema_version", job.schema_version, "of this file", between(1, 1));
  v.required("state", job.state, "running, waiting, done, interrupted or failed");
  v.required("host", job.host, "of the supervisor");
  v.required("supervisor", job.supervisor, "its process");
  v.required("written_s", job.written_s, "seconds since 1970");
  v.required("plan", job.plan, "file that the run was started with");
  v.optional("job_plan", job.job_plan, "file of the plan that runs");
  v.required("layout", job.layout, "of the plan that runs");
  v.required("ranks", job.ranks, "that run", at_least(0));
  v.required("least_ranks", job.least_ranks, "with which the job goes on", at_least(1));
  v.required("most_ranks", job.most_ranks, "that it may use", at_least(1));
  v.required("step", job.step, "the last step that is done", at_least(0));
  v.required("num_steps", job.num_steps, "of the whole run", at_least(0));
  v.optional("step_time_s", job.step_time_s, "mean of the last steps with this layout, seconds");
  v.optional("nodes", job.nodes, "hosts of the run");
  v.optional("failures", job.failures, "the newest failures");
  v.optional("events", job.events, "what the supervisor did");
}

namespace {

/// "2026-11-30 15:04:05 UTC"
std::string time_text(double seconds) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::string state_text(const JobRecord& job, double now_s) {
  if (job.state != "running" && job.state != "waiting") return job.state;
  return fmt::format("{} (process {} on {}, {:.0f} s ago)", job.state, job.supervisor, job.host,
                     std::max(0.0, now_s - job.written_s));
}

/// "slot 1: 1.80 x"
std::string slow_text(const runtime::JobNode& node) {
  std::string text;
  for (const runtime::SlowSlot& slow : node.slow)
    text += fmt::format("{}slot {}: {:.2f} x", text.empty() ? "" : ", ", slow.slot, slow.times);
  return text;
}

std::string nodes_text(const JobRecord& job, double now_s) {
  using reports::Align;
  reports::Table table{.columns = {{"node", Align::Left},
                                   {"state", Align::Left},
                                   {"slots"},
                                   {"lost"},
                                   {"slow", Align::Left},
                                   {"failures"},
                                   {"tried again"},
                                   {"last failure", Align::Left}},
                       .rows = {}};
  for (const runtime::JobNode& node : job.nodes) {
    const bool waits = node.state == runtime::NodeState::Suspect && node.lost_slots > 0;
    table.rows.push_back(
        {node.name.empty() ? "this machine" : node.name, std::string(name_of(node.state)),
         std::to_string(node.slots), std::to_string(node.lost_slots), slow_text(node),
         std::to_string(node.failures.size()),
         waits ? fmt::format("in {:.0f} s", std::max(0.0, node.retry_at_s - now_s)) : "",
         node.last_failure});
  }
  return reports::to_text(table);
}

}  // namespace

std::string job_file(const std::string& folder) {
  return folder + "/job.json";
}

std::optional<JobRecord> read_job(const std::string& folder) {
  const std::string path = job_file(folder);
  if (!path_exists(path)) return std::nullopt;
  return read_json<JobRecord>(read_file(path), path);
}

std::string to_json(const JobRecord& job) {
  return write_json(job).dump(2) + "\n";
}

void write_job(const std::string& folder, const JobRecord& job) {
  write_file(job_file(folder), to_json(job));
}

std::string to_text(const JobRecord& job, const std::string& folder, double now_s) {
  std::string text = fmt::format("{}: {}\n", folder, state_text(job, now_s));
  text += fmt::format("plan     {} on {} rank{} ({} to {}), started with {}", job.layout, job.ranks,
                      job.ranks == 1 ? "" : "s", job.least_ranks, job.most_ranks, job.plan);
  const bool is_other = !job.job_plan.empty() && job.job_plan != job.plan;
  text += is_other ? fmt::format(", runs {}\n", job.job_plan) : "\n";
  text += fmt::format("step     {} of {}", job.step, job.num_steps);
  if (job.step_time_s > 0) text += fmt::format(", {}", planner::format_seconds(job.step_time_s));
  text += "\n\n" + nodes_text(job, now_s);
  if (!job.events.empty()) text += "\n";
  constexpr std::size_t kShown = 10;
  const std::size_t first = job.events.size() > kShown ? job.events.size() - kShown : 0;
  for (std::size_t i = first; i < job.events.size(); ++i)
    text += fmt::format("{}  {}\n", time_text(job.events[i].at_s), job.events[i].text);
  return printable(text);
}

}  // namespace meshplan::cli
