#include "engine/player.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"

namespace meshplan::sim {
namespace {

// Periods that differ by less are the same: times are sums of some 1e5 doubles.
constexpr double kSamePeriod = 1e-9;
constexpr double kNotYet = -1;

}  // namespace

Player::Player(Play& play, const Cluster& cluster, const SimulationOptions& options)
    : play_(play), cluster_(cluster), options_(options) {
  std::size_t instances = 0;
  for (int rank = 0; rank < static_cast<int>(play.ranks.size()); ++rank) {
    outcome_.offset.push_back(instances);
    instances += at(num_instances(rank));
  }
  first_meeting_ = play.ranks.size() * program::kNumLanes;
  working_.resize(first_meeting_);
  for (std::vector<double>& ends : rank_ends_) ends.resize(play.ranks.size());
  for (int parity = 0; parity < 2; ++parity)
    for (const Meeting& meeting : play.meetings)
      meeting_states_.push_back({.left = meeting.seconds});
  play.resources.resize_activities(first_meeting_ + meeting_states_.size());
  done_step_.assign(instances, -1);
  if (!options.break_down && !options.record_spans) return;
  for (PlayedStep& step : played_) {
    step.start.assign(instances, kNotYet);
    step.end.assign(instances, kNotYet);
  }
}

const Meeting& Player::meeting_of(int activity) const {
  return play_.meetings[(at(activity) - first_meeting_) % play_.meetings.size()];
}

bool Player::waits_done(int rank, int instance, int step) const {
  const StageTables& table = tables(rank);
  const int* done = done_step_.data() + outcome_.offset[at(rank)];
  for (int w = table.wait_begin[at(instance)]; w < table.wait_begin[at(instance) + 1]; ++w)
    if (done[table.waits[at(w)]] < step) return false;
  return true;
}

void Player::push(Event event) {
  heap_.push_back(event);
  std::push_heap(heap_.begin(), heap_.end(), later);
}

void Player::push_changed() {
  for (const int activity : play_.resources.changed())
    push({play_.resources.finish_time(activity), activity, play_.resources.version(activity)});
  play_.resources.clear_changed();
}

void Player::set_timer(int rank, double when) {
  push({when, ~rank, 0});
}

void Player::note_start(int rank, int instance, int step) {
  std::vector<double>& start = played_[at(step & 1)].start;
  if (!start.empty()) start[outcome_.offset[at(rank)] + at(instance)] = now_;
}

void Player::begin_work(int rank, int lane, int instance, int step, std::optional<double> seconds) {
  const Work& work = play_.works[at(target(rank, instance))];
  const int activity = rank * program::kNumLanes + lane;
  working_[at(activity)] = {instance, step};
  note_start(rank, instance, step);
  play_.resources.start(activity, work.usages, seconds.value_or(work.seconds), now_);
  push_changed();
}

int Player::arrive(int rank, int instance, int step) {
  const int activity = activity_of(~target(rank, instance), step);
  note_start(rank, instance, step);
  ++state_of(activity).arrived;
  return activity;
}

bool Player::all_arrived(int activity) const {
  return state_of(activity).arrived == meeting_of(activity).num_members;
}

void Player::start_meeting(int activity) {
  play_.resources.start(activity, meeting_of(activity).usages, state_of(activity).left, now_);
  push_changed();
}

void Player::pause_meeting(int activity) {
  state_of(activity).left = play_.resources.stop(activity, now_);
  push_changed();
}

void Player::mark_done(int rank, int instance, int step) {
  const Index slot = outcome_.offset[at(rank)] + at(instance);
  done_step_[slot] = step;
  outcome_.events += 2;  // its start and its end
  std::vector<double>& end = played_[at(step & 1)].end;
  if (end.empty()) return;
  end[slot] = now_;
  if (step == 1 && steps_finished_ == 1 && ++done_of_second_ >= next_look_)
    later_ = now_ - played_.front().end[slot];
}

void Player::complete_work(int activity) {
  play_.resources.stop(activity, now_);
  push_changed();
  const int rank = activity / program::kNumLanes;
  const Working working = working_[at(activity)];
  mark_done(rank, working.instance, working.step);
  proceed(rank, part_done(rank, working.instance, activity));
}

void Player::complete_meeting(int activity) {
  play_.resources.stop(activity, now_);
  push_changed();
  const Meeting& meeting = meeting_of(activity);
  state_of(activity) = {.left = meeting.seconds};
  const Index index = at(activity) - first_meeting_;
  const int parity = index < play_.meetings.size() ? 0 : 1;
  // Ranks are at most one step apart, so the parity tells the step.
  const int step = steps_finished_ + ((steps_finished_ & 1) == parity ? 0 : 1);
  const auto members =
      std::span(play_.members).subspan(meeting.members_begin, at(meeting.num_members));
  woken_.clear();
  for (const Member& member : members) {
    mark_done(member.rank, member.instance, step);
    woken_.push_back(part_done(member.rank, member.instance, activity));
  }
  for (std::size_t m = 0; m < members.size(); ++m) proceed(members[m].rank, woken_[m]);
}

void Player::handle(const Event& event) {
  if (event.activity < 0) {
    now_ = event.time;
    proceed(~event.activity, kAllLanes);
    return;
  }
  if (!play_.resources.is_active(event.activity) ||
      play_.resources.version(event.activity) != event.version)
    return;  // its finish time has changed since
  now_ = event.time;
  if (at(event.activity) < first_meeting_)
    complete_work(event.activity);
  else
    complete_meeting(event.activity);
}

/// Did every rank end this step as long before the last one as it did the step before?
bool Player::ranks_end_alike() const {
  const auto& ends = outcome_.step_ends;
  const double apart = ends.back() - ends[ends.size() - 2];
  const auto& now = rank_ends_[at((steps_finished_ - 1) & 1)];
  const auto& before = rank_ends_[at(steps_finished_ & 1)];
  for (std::size_t rank = 0; rank < now.size(); ++rank)
    if (std::abs(now[rank] - before[rank] - apart) > kSamePeriod * apart) return false;
  return true;
}

/// A step ends in what all ranks wait for, the norm of all gradients: ranks that then end alike
/// begin the next one alike. Else its period tells.
bool Player::settled() const {
  const auto& ends = outcome_.step_ends;
  if (ends.size() < 2) return false;
  if (!cluster_.communication.needs_host && ranks_end_alike()) return true;
  if (ends.size() < 3) return false;
  const double last = ends[ends.size() - 1] - ends[ends.size() - 2];
  const double before = ends[ends.size() - 2] - ends[ends.size() - 3];
  return std::abs(last - before) <= kSamePeriod * last;
}

void Player::finish_step(int rank, int step) {
  rank_ends_[at(step & 1)][at(rank)] = now_;
  if (++ranks_finished_[at(step & 1)] < static_cast<int>(play_.ranks.size())) return;
  ranks_finished_[at(step & 1)] = 0;
  ++steps_finished_;
  outcome_.step_ends.push_back(now_);
  outcome_.periodic = settled();
  stopped_ = outcome_.periodic || steps_finished_ == options_.max_steps;
  gate_opened_ = true;
}

/// A step is long, and the state in which it begins is soon that of the step before: what follows
/// from equal states is equal.
void Player::look_at_second_step() {
  const double later = *std::exchange(later_, std::nullopt);
  if (is_as_in_first_step(later)) return end_as_first_step(later);
  constexpr int kSeldom = 64, kPart = 8;
  next_look_ = done_of_second_ + kSeldom + done_of_second_ / kPart;
}

void Player::end_as_first_step(double later) {
  const PlayedStep& first = played_.front();
  PlayedStep& second = played_.back();
  for (std::size_t slot = 0; slot < done_step_.size(); ++slot) {
    if (done_step_[slot] == 1) continue;
    if (second.start[slot] == kNotYet) second.start[slot] = first.start[slot] + later;
    second.end[slot] = first.end[slot] + later;
  }
  outcome_.step_ends.push_back(outcome_.step_ends.back() + later);
  outcome_.periodic = true;
  steps_finished_ = 2;
  stopped_ = true;
}

void Player::report_deadlock() const {
  for (int rank = 0; rank < static_cast<int>(play_.ranks.size()); ++rank)
    if (const std::string words = stuck(rank); !words.empty())
      throw InvariantError(fmt::format("nothing can proceed; rank {} waits at {}",
                                       play_.ranks[at(rank)].rank, words));
  throw InvariantError("nothing can proceed");
}

Outcome Player::run() {
  const int num_ranks = static_cast<int>(play_.ranks.size());
  for (int rank = 0; rank < num_ranks; ++rank) proceed(rank, kAllLanes);
  while (!stopped_) {
    if (gate_opened_) {
      gate_opened_ = false;
      for (int rank = 0; rank < num_ranks && !stopped_; ++rank) proceed(rank, kAllLanes);
      continue;
    }
    if (heap_.empty() || heap_.front().time > now_) {  // all that happens at this instant has
      if (!play_.resources.is_settled()) {
        play_.resources.settle(now_);
        push_changed();
      }
      if (later_ && !options_.whole_steps && steps_finished_ == 1) {
        look_at_second_step();
        continue;
      }
    }
    if (heap_.empty()) report_deadlock();
    const Event event = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
    handle(event);
  }
  outcome_.last = std::move(played_[at((steps_finished_ - 1) & 1)]);
  return std::move(outcome_);
}

}  // namespace meshplan::sim
