// Traces of lowered programs, played by rules as plain as they can be, with one thing gone wrong.
#pragma once

#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "program/lower/lower.hpp"
#include "program/plan/mesh.hpp"
#include "program/trace/trace.hpp"

namespace meshplan::sim::test {

/// What is wrong on one rank.
struct Fault {
  enum class Kind { LateOnce, SlowOperation, SlowLinks };
  Kind kind = Kind::LateOnce;
  int rank = 0;
  std::string operation;     // LateOnce, SlowOperation
  std::size_t instance = 0;  // of the rank's program, LateOnce
  double by = 0;             // seconds, LateOnce; else a factor
};

/// Every operation starts when its lane and what it waits for are done. What is computed takes a
/// time of its name's, a message or collective one from when its last member has come.
class HandPlayer {
 public:
  HandPlayer(const program::Plan& plan, unsigned seed, double speed, std::optional<Fault> fault)
      : mesh_(program::mesh_of(plan)),
        programs_(program::lower_all(plan)),
        random_(seed),
        speed_(speed),
        fault_(std::move(fault)) {
    trace_.plan = plan;
    trace_.world_size = mesh_.world_size();
    trace_.measured = true;
    for (int rank = 0; rank < mesh_.world_size(); ++rank) prepare(rank);
  }

  program::Trace play() {
    bool progressed = true;
    while (progressed) {
      progressed = false;
      for (Rank& rank : ranks_)
        for (auto& [lane, queue] : rank.lanes) progressed |= start_head(rank, queue);
    }
    double end = 0;
    for (Rank& rank : ranks_)
      for (program::Span& span : rank.spans) {
        end = std::max(end, span.end_s);
        trace_.spans.push_back(span);
      }
    trace_.step_times_s = {end};
    return trace_;
  }

 private:
  struct Lane {
    std::vector<std::size_t> instances;
    std::size_t head = 0;
    double free = 0;
    bool started = false;
  };
  struct Rank {
    int rank = 0;
    const program::Program* program = nullptr;
    std::vector<program::Span> spans;
    std::vector<bool> done;
    std::map<program::Lane, Lane> lanes;
  };
  struct Meet {
    std::vector<std::pair<int, std::size_t>> members;
    std::size_t expected = 0;
  };
  using MeetKey = std::tuple<std::string, int, int, int, std::uint64_t>;

  void prepare(int number) {
    Rank rank{.rank = number,
              .program = &programs_[static_cast<std::size_t>(mesh_.coordinates(number).pp)]};
    for (std::size_t i = 0; i < rank.program->instances.size(); ++i) {
      rank.spans.push_back(
          program::make_span(*rank.program, rank.program->instances[i], mesh_, number));
      rank.lanes[rank.spans.back().lane].instances.push_back(i);
    }
    rank.done.assign(rank.spans.size(), false);
    ranks_.push_back(std::move(rank));
  }

  bool start_head(Rank& rank, Lane& lane) {
    if (lane.started || lane.head == lane.instances.size()) return false;
    const std::size_t i = lane.instances[lane.head];
    program::Span& span = rank.spans[i];
    span.start_s = lane.free;
    for (const int wait : waits_of(*rank.program, rank.program->instances[i])) {
      if (!rank.done[static_cast<std::size_t>(wait)]) return false;
      span.start_s = std::max(span.start_s, rank.spans[static_cast<std::size_t>(wait)].end_s);
    }
    lane.started = true;
    if (span.group.empty())
      finish(rank, i, span.start_s + seconds_of(rank.rank, i, span));
    else
      meet(rank, i);
    return true;
  }

  void finish(Rank& rank, std::size_t i, double end) {
    rank.spans[i].end_s = end;
    rank.done[i] = true;
    Lane& lane = rank.lanes[rank.spans[i].lane];
    lane.free = end;
    lane.started = false;
    ++lane.head;
  }

  void meet(Rank& rank, std::size_t i) {
    const program::Span& span = rank.spans[i];
    MeetKey key;
    std::size_t expected = 2;
    if (span.peer) {
      const bool send = span.name.starts_with("send");
      const int from = send ? rank.rank : *span.peer, to = send ? *span.peer : rank.rank;
      const std::string what = span.name.substr(4);
      key = {what, from, to, 0, messages_[{what, from, to, send}]++};
    } else {
      const std::vector<int> members = members_of(rank, i);
      expected = members.size();
      key = {span.group, members.front(), static_cast<int>(span.lane), 1, span.id};
    }
    Meet& meet = meets_[key];
    meet.expected = expected;
    meet.members.emplace_back(rank.rank, i);
    if (meet.members.size() < meet.expected) return;
    double start = 0, slow = 1;
    for (const auto& [member, instance] : meet.members) {
      start = std::max(start, ranks_[static_cast<std::size_t>(member)].spans[instance].start_s);
      if (fault_ && fault_->kind == Fault::Kind::SlowLinks && fault_->rank == member)
        slow = fault_->by;
    }
    const double end = start + slow * usual_of(span, 5e-6, 15e-6);
    for (const auto& [member, instance] : meet.members)
      finish(ranks_[static_cast<std::size_t>(member)], instance, end);
  }

  std::vector<int> members_of(const Rank& rank, std::size_t i) const {
    const auto& operation = program::operation_of(*rank.program, rank.program->instances[i]);
    if (const auto* collective = std::get_if<program::CollectiveOp>(&operation.work))
      return mesh_.group(collective->group, rank.rank);
    return mesh_.group(std::get<program::FlatCollectiveOp>(operation.work).collective.group,
                       rank.rank);
  }

  /// A time of the operation's own between two, give or take 2 %. Halves of a message share it.
  double usual_of(const program::Span& span, double least, double most) {
    const std::string name = span.peer ? span.name.substr(4) : span.name;
    const double place = static_cast<double>(std::hash<std::string>{}(name) % 1000) / 1000;
    const double noise = std::uniform_real_distribution(0.98, 1.02)(random_);
    return speed_ * noise * (least + place * (most - least));
  }

  double seconds_of(int rank, std::size_t i, const program::Span& span) {
    const double usual = usual_of(span, 20e-6, 60e-6);
    if (!fault_ || fault_->rank != rank) return usual;
    if (fault_->kind == Fault::Kind::LateOnce && fault_->instance == i) return usual + fault_->by;
    if (fault_->kind == Fault::Kind::SlowOperation && fault_->operation == span.name)
      return usual * fault_->by;
    return usual;
  }

  program::Mesh mesh_;
  std::vector<program::Program> programs_;
  std::mt19937 random_;
  double speed_;
  std::optional<Fault> fault_;
  program::Trace trace_;
  std::vector<Rank> ranks_;
  std::map<MeetKey, Meet> meets_;
  std::map<std::tuple<std::string, int, int, bool>, std::uint64_t> messages_;
};

}  // namespace meshplan::sim::test
