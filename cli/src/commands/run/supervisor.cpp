#include "commands/run/supervisor.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include "commands/run/elastic_layout.hpp"
#include "commands/run/job_log.hpp"
#include "commands/run/run_launch.hpp"
#include "commands/run/slow_rank.hpp"
#include "core/error.hpp"
#include "core/units.hpp"
#include "options/inputs.hpp"
#include "options/plan_for_ranks.hpp"
#include "options/run/run_start.hpp"
#include "planner/elastic/replan.hpp"
#include "process/exit_codes.hpp"
#include "process/interrupt.hpp"
#include "process/threads.hpp"
#include "ranks/ranks.hpp"
#include "runtime/node_store/recovery.hpp"
#include "runtime/weights/checkpoint.hpp"

namespace meshplan::cli {
namespace {

/// Asks whether ranks could be started on a host.
bool answers(const std::string& host) {
  return host.empty() || runtime::host_answers(host);
}

/// What a look around has found, made beside the job.
struct Scouted {
  std::vector<std::string> back;   // nodes that can be used again
  std::vector<std::string> quick;  // nodes whose slow ranks are taken for quick again
  WayOn way;
  double now_s = 0;  // predicted of a step of the layout that runs
};

/// @param forgets  takes slow ranks for quick whose time has come
Scouted scout(const ElasticRun& run, const ElasticLayout& running, runtime::Nodes nodes,
              double clock_s, bool forgets) {
  std::vector<std::string> back = nodes.retry(clock_s, answers);
  std::vector<std::string> quick;
  if (forgets) quick = nodes.forget_slow(clock_s);
  const double now_s = predicted_step_s(running, nodes);
  return {.back = std::move(back),
          .quick = std::move(quick),
          .way = way_on(run, std::move(nodes)),
          .now_s = now_s};
}

class Supervisor {
 public:
  Supervisor(RunOptions& options, const Command& command)
      : options_(options), command_(command), given_(options) {
    run_.plan = load_plan(options_);
    run_.cluster = cluster_of(run_.plan, *options_.file);
    run_.range = parse_rank_range(*given_.elastic.range, run_.plan.parallel.world_size());
    run_.any_placement = given_.any_placement;
    folder_ = folder_to_save_to(options_);
    nodes_.emplace(hosts(), policy());
    log_.emplace(folder_, given_.quiet, given_.log);
    if (std::optional<JobRecord> earlier = log_->earlier(); earlier && given_.resume)
      nodes_.emplace(std::move(earlier->nodes), hosts(), policy());
  }

  int run() {
    while (true) {
      std::optional<ElasticLayout> layout = await_layout();
      if (interrupted_) return end("interrupted", kInterrupted);
      if (!layout) return end("failed", kFailed);
      runtime::JobEnd job;
      try {
        step_ = first_step_;
        if (prepare(*layout)) return end("done", kDone);
        job = run_job(*layout);
        has_run_ = true;
      } catch (const IoError& error) {
        if (!has_run_) throw;  // it is a matter of the input
        job = {.code = kFailed, .cause = error.what()};
        log_->say(error.what());
      }
      finish_scouting();
      if (job.by_signal) return end("interrupted", kInterrupted);
      if (job.code == kDone) return end("done", kDone);
      if (job.as_wished) continue;
      if (const std::optional<int> code = note_failure(job)) return end("failed", *code);
    }
  }

 private:
  // ------------------------------------------------------------ hosts

  runtime::NodePolicy policy() const {
    return {.retry_after_s = given_.elastic.retry_after_s,
            .most_failures = given_.elastic.node_failures};
  }

  /// All hosts of the run, spare ones last. Those without a number share the most ranks.
  std::vector<runtime::HostSlots> hosts() const {
    std::vector<runtime::HostSlots> hosts = parse_hosts(given_.hosts);
    if (given_.elastic.spares)
      for (runtime::HostSlots& spare : runtime::parse_host_list(*given_.elastic.spares))
        hosts.push_back(std::move(spare));
    if (hosts.empty()) return {{.name = "", .slots = run_.range.most, .is_limit = true}};
    const auto count = static_cast<int>(hosts.size());
    for (runtime::HostSlots& host : hosts)
      if (!host.is_limit) host.slots = (run_.range.most + count - 1) / count;
    return hosts;
  }

  /// A hostfile may grow and shrink while the run goes on. One that cannot be read right now, or
  /// is being written, changes nothing.
  void reread_hosts() {
    if (!given_.hosts.hostfile) return;
    std::error_code unreadable;
    const auto written = std::filesystem::last_write_time(*given_.hosts.hostfile, unreadable);
    if (unreadable || written == std::exchange(hostfile_written_, written)) return;
    try {
      for (const std::string& name : nodes_->set_hosts(hosts()))
        log_->say(fmt::format("{} has joined", name_of_node(name)));
    } catch (const std::exception& error) {
      log_->say(fmt::format("hosts stay as they are: {}", error.what()));
    }
  }

  static std::string name_of_node(const std::string& name) {
    return name.empty() ? "this machine" : name;
  }

  // ------------------------------------------------------------ between two jobs

  /// Waits for suspects where too few ranks are left. Nothing: the run cannot go on, or a signal
  /// has ended it.
  std::optional<ElasticLayout> await_layout() {
    const InterruptRequest interrupt({SIGINT, SIGTERM, SIGHUP});
    bool said = false;
    while (true) {
      interrupted_ = interrupt.made();
      if (interrupted_) return std::nullopt;
      reread_hosts();
      for (const std::string& name : nodes_->retry(wall_s(), answers))
        log_->say(fmt::format("{} is used again", name_of_node(name)));
      std::string why_not;
      std::optional<ElasticLayout> layout = choose_layout(run_, *nodes_, on_threads(0), why_not);
      if (layout) return layout;
      const std::optional<double> retry = nodes_->next_retry_s();
      if (!retry && !given_.hosts.hostfile) {
        log_->say(fmt::format("the run ends: {}", why_not));
        return std::nullopt;
      }
      if (!std::exchange(said, true)) {
        log_->say(fmt::format("waits for hosts: {}{}", why_not,
                              retry ? fmt::format("; the next one is tried in {:.0f} s",
                                                  std::max(0.0, *retry - wall_s()))
                                    : ""));
        log_->set_state("waiting", *nodes_);
      }
      do std::this_thread::sleep_for(std::chrono::milliseconds{250});
      while (!interrupt.made() && !hostfile_changed() && !(retry && wall_s() >= *retry));
    }
  }

  bool hostfile_changed() const {
    if (!given_.hosts.hostfile) return false;
    std::error_code unreadable;
    return std::filesystem::last_write_time(*given_.hosts.hostfile, unreadable) !=
           hostfile_written_;
  }

  /// Sets the options of the next job. @returns whether all steps are done already
  bool prepare(const ElasticLayout& layout) {
    options_ = given_;
    options_.hosts.hostfile.reset();
    const std::string hosts = runtime::to_string(layout.hosts);
    options_.hosts.hosts = hosts.empty() ? std::nullopt : std::optional(hosts);
    options_.checkpoint_dir = folder_;
    if (jobs_ > 0) options_.resume = kLatestIfAny;
    const auto say = [this](const std::string& line) { log_->say(line); };
    if (std::exchange(checkpoints_suspected_, false)) set_damaged_aside(options_, say);
    options_.ranks.reset();
    if (!layout.is_original) {
      options_.file = folder_ + "/job-plan.json";
      write_run_plan(*options_.file, layout.plan, layout.cluster, *given_.file);
    }
    resolve_intact(options_, say);
    first_step_ = options_.resumed ? static_cast<int>(options_.resumed->step) : 0;
    if (!is_done(options_)) return false;
    say_done(options_);
    return true;
  }

  // ------------------------------------------------------------ a job

  runtime::JobEnd run_job(const ElasticLayout& layout) {
    ++jobs_;
    say_start(layout);
    nodes_->use(layout.hosts);
    layout_ = &layout;
    host_of_rank_ = runtime::hosts_of_ranks(layout.hosts, layout.ranks());
    step_ = first_step_;
    step_time_s_ = 0;
    started_s_ = wall_s();
    refused_slots_ = 0;
    slow_.reset();
    slow_step_ = first_step_;
    planned_slow_ = nodes_->slow_ranks(layout.hosts);
    log_->begin({.layout = layout,
                 .run = run_,
                 .nodes = *nodes_,
                 .plan_file = *given_.file,
                 .job_plan_file = *options_.file,
                 .num_steps = options_.train.num_steps,
                 .step = step_});
    const program::Plan plan = load_plan(options_);
    const DeviceKind device = choose_device(options_, plan);
    return launch(options_, command_, plan, device,
                  {.wants_stop = [this] { return wants_to_move(); },
                   .on_step = [this](const runtime::StepNews& news) { take_step(news); }});
  }

  void finish_scouting() {
    if (scouting_.valid()) scouting_.wait();
    scouting_ = {};
    if (weighing_.valid()) weighing_.wait();
    weighing_ = {};
    layout_ = nullptr;
  }

  void say_start(const ElasticLayout& layout) {
    if (layout.is_original && jobs_ == 1) return;
    const std::string from = jobs_ > 1 || first_step_ > 0
                                 ? fmt::format("goes on from step {} or later", first_step_)
                                 : "starts";
    const std::string plan = layout.is_original ? "the run's own plan" : layout.change;
    log_->say(fmt::format("{} with {} rank{}: {}", from, layout.ranks(),
                          layout.ranks() == 1 ? "" : "s",
                          replanned_text(plan, layout.step_time_s, layout.reason)));
  }

  void take_step(const runtime::StepNews& news) {
    constexpr double kNew = 0.2;  // weight of a new step in the mean
    if (step_time_s_ == 0) {
      start_s_ = std::max(0.0, wall_s() - started_s_ - news.seconds);
      step_time_s_ = usual_step_s_ = news.seconds;
    }
    step_time_s_ += kNew * (news.seconds - step_time_s_);
    usual_step_s_ = std::min(usual_step_s_, step_time_s_);
    step_ = std::max(step_, news.step);
    if (news.slow_rank >= 0 && given_.elastic.replace_slow_ranks) note_slow(news);
    log_->step(step_, step_time_s_, *nodes_);
  }

  /// A rank that is as slow as it was planned to be is nothing new.
  void note_slow(const runtime::StepNews& news) {
    constexpr double kAlike = 1.5;  // times as slow, or as quick
    slow_step_ = news.step;
    const auto rank = host_of_rank_.begin() + news.slow_rank;
    const SlowRankOfJob slow{
        .rank = news.slow_rank,
        .times = news.slow_times,
        .host = *rank,
        .slot = static_cast<int>(std::count(host_of_rank_.begin(), rank, *rank))};
    const auto known = planned_slow_.find(news.slow_rank);
    const bool alike = known != planned_slow_.end() && slow.times < kAlike * known->second &&
                       known->second < kAlike * slow.times;
    if (alike)
      nodes_->note_slow(slow.host, slow.slot, known->second, wall_s());
    else
      slow_ = slow;
  }

  // ------------------------------------------------------------ another layout

  /// Asked four times a second, beside the job's output and signals: it plans in another thread.
  bool wants_to_move() {
    if (step_time_s_ == 0) return false;
    const auto is_ready = [](const auto& planned) {
      return planned.wait_for(std::chrono::seconds{0}) == std::future_status::ready;
    };
    if (weighing_.valid()) return is_ready(weighing_) && is_worth_moving(weighing_.get());
    if (scouting_.valid()) return is_ready(scouting_) && is_worth_taking(scouting_.get());
    start_planning();
    return false;
  }

  void start_planning() {
    reread_hosts();
    if (const auto slow = std::exchange(slow_, std::nullopt)) {
      weighing_ = std::async(std::launch::async, ways_on, run_, *layout_, *nodes_, *slow, wall_s());
      return;
    }
    const std::optional<double> retry = nodes_->next_retry_s();
    const bool due = retry && wall_s() >= *retry;
    const int room = std::min(nodes_->usable_slots(), run_.range.most);
    const bool grows = room > layout_->ranks() && room != refused_slots_;
    const bool forgets = may_forget_slow();
    if (due || grows || forgets)
      scouting_ = std::async(std::launch::async, scout, run_, *layout_, *nodes_, wall_s(), forgets);
  }

  /// A rank that is still slow is found to be within a few steps, and said to be in each of them.
  bool may_forget_slow() const {
    constexpr int kTimedSteps = 10;
    const std::optional<double> forget = nodes_->next_forget_s();
    const int every = std::max(1, options_.train.watch.time_every);
    return forget && wall_s() >= *forget && step_ - slow_step_ >= kTimedSteps * every;
  }

  bool is_worth_taking(Scouted found) {
    nodes_ = std::move(found.way.nodes);
    for (const std::string& name : found.back)
      log_->say(fmt::format("{} can be used again", name_of_node(name)));
    for (const std::string& name : found.quick)
      log_->say(fmt::format("{} is taken to be as fast as others again", name_of_node(name)));
    planned_slow_ = nodes_->slow_ranks(layout_->hosts);
    refused_slots_ = std::min(nodes_->usable_slots(), run_.range.most);
    const std::optional<ElasticLayout>& layout = found.way.layout;
    if (!layout) return false;
    if (layout->ranks() > layout_->ranks()) return is_worth_growing(*layout);
    if (found.quick.empty() || same_layout(*layout, *layout_)) return false;
    return is_worth(planner::layout_text(layout->plan),
                    step_time_s_ * layout->step_time_s / found.now_s);
  }

  /// Whether the steps that are left would be done sooner, a restart included.
  /// @param step_s  what a step would take
  bool is_worth(const std::string& what, double step_s) {
    const RunAhead ahead = run_ahead();
    const double saved = ahead.saved_s(step_s);
    const bool worth = saved > ahead.move_s;
    if (saved <= 0)
      log_->say(fmt::format("{} would not be faster: stays", what));
    else
      log_->say(fmt::format(
          "{} would save {:.1f} s of the {:.1f} s that are left; moving takes "
          "about {:.1f} s: {}",
          what, saved, ahead.left_s(), ahead.move_s, worth ? "moves after this step" : "stays"));
    return worth;
  }

  /// A move takes a start as the last one was, and saving.
  RunAhead run_ahead() const {
    return {.steps = options_.train.num_steps - step_,
            .step_s = step_time_s_,
            .move_s = start_s_ + step_time_s_};
  }

  bool is_worth_growing(const ElasticLayout& larger) {
    if (larger.ranks() <= layout_->ranks() || layout_->step_time_s <= 0) return false;
    return is_worth(fmt::format("{} ranks", larger.ranks()),
                    step_time_s_ * larger.step_time_s / layout_->step_time_s);
  }

  /// Steps before the rank became slow tell what predicted ones take; where it has been slow from
  /// the start on, those with it do.
  bool is_worth_moving(const SlowRankWays& ways) {
    const double measured_over_predicted =
        std::min(usual_step_s_ / layout_->step_time_s, step_time_s_ / ways.now_s);
    const SlowRankDecision decision = decide(ways, *layout_, run_ahead(), measured_over_predicted);
    log_->say(decision.text);
    nodes_ = (decision.taken != nullptr ? *decision.taken : ways.less_work).nodes;
    planned_slow_[ways.slow.rank] = ways.slow.times;
    slow_.reset();  // what was said meanwhile is said again
    return decision.taken != nullptr;
  }

  // ------------------------------------------------------------ failures

  /// @returns the exit code of the run if it cannot go on
  std::optional<int> note_failure(const runtime::JobEnd& job) {
    const double now = wall_s();
    const std::string cause = job.cause.empty() ? "the job failed" : job.cause;
    const bool lost_any = !job.lost_ranks.empty() || !job.lost_hosts.empty();
    const bool refused = !lost_any && (job.code == kBadInput || job.code == kInfeasible);
    const bool may_be_damaged = options_.resumed && step_ == first_step_ && !tried_intact_;
    if (refused && !may_be_damaged) return job.code;
    checkpoints_suspected_ = tried_intact_ = refused;
    for (const std::string& host : job.lost_hosts) nodes_->lose_node(host, now, cause);
    for (const int rank : job.lost_ranks)
      if (rank >= 0 && rank < static_cast<int>(host_of_rank_.size()))
        nodes_->lose_rank(host_of_rank_[static_cast<std::size_t>(rank)], now, cause);
    log_->fail(step_, cause, *nodes_);
    if (step_ > first_step_) {
      failures_without_step_ = 0;
    } else if (!lost_any) {
      ++failures_without_step_;
    }
    return limit_reached(now);
  }

  std::optional<int> limit_reached(double now) {
    constexpr int kMostWithoutStep = 3;
    constexpr double kHour = 3600;
    failed_at_s_.push_back(now);
    std::erase_if(failed_at_s_, [&](double time) { return time < now - kHour; });
    if (static_cast<int>(failed_at_s_.size()) > given_.elastic.failures_per_hour) {
      log_->say(fmt::format("the run ends: {} failures within an hour (--failures-per-hour {})",
                            failed_at_s_.size(), given_.elastic.failures_per_hour));
      return kFailed;
    }
    if (failures_without_step_ < kMostWithoutStep) return std::nullopt;
    log_->say(fmt::format("the run ends: {} jobs in a row have failed before they had done a step",
                          failures_without_step_));
    return kFailed;
  }

  /// Ranks remove the stores of their own nodes; others may have been left by earlier jobs.
  int end(const std::string& state, int code) {
    std::vector<std::string> names;
    for (const runtime::JobNode& node : nodes_->all()) names.push_back(node.name);
    if (code != kFailed)
      runtime::remove_stores_here(names, std::filesystem::absolute(folder_).string());
    log_->set_state(state, *nodes_);
    return code;
  }

  RunOptions& options_;  // of the job that runs, or is prepared
  const Command& command_;
  const RunOptions given_;
  ElasticRun run_;
  std::string folder_;  // of the checkpoints
  std::optional<runtime::Nodes> nodes_;
  std::optional<JobLog> log_;
  std::filesystem::file_time_type hostfile_written_;
  int jobs_ = 0;                           // that were started
  bool has_run_ = false;                   // at least one of them
  bool interrupted_ = false;               // between two jobs
  const ElasticLayout* layout_ = nullptr;  // of the job that runs
  std::vector<std::string> host_of_rank_;  // of it, or of the one before
  int first_step_ = 0;                     // done before it
  int step_ = 0;
  double step_time_s_ = 0;   // mean of the last; 0 = none is done yet
  double usual_step_s_ = 0;  // the least such mean of the job
  double started_s_ = 0;
  double start_s_ = 0;  // that the last job took before its first step
  std::future<Scouted> scouting_;
  std::future<SlowRankWays> weighing_;
  std::optional<SlowRankOfJob> slow_;   // not looked at yet
  int slow_step_ = 0;                   // the last in which a rank was said to be slow
  std::map<int, double> planned_slow_;  // ranks of the job that were planned for as so slow
  int refused_slots_ = 0;               // with which moving was not worth it
  bool checkpoints_suspected_ = false;
  bool tried_intact_ = false;
  int failures_without_step_ = 0;
  std::vector<double> failed_at_s_;
};

}  // namespace

int supervise(RunOptions& options, const Command& command) {
  return Supervisor(options, command).run();
}

}  // namespace meshplan::cli
