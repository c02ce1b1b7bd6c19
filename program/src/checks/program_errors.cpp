#include "checks/program_errors.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <tuple>

#include "checks/provenance.hpp"
#include "checks/races.hpp"
#include "core/index.hpp"
#include "program/cost/cost.hpp"
#include "program/memory/address.hpp"

namespace meshplan::program {
namespace {

// One message of a stage, in issue order per lane.
struct Message {
  std::string name;
  int microbatch = 0;
  std::int64_t bytes = 0;
  std::string text() const {
    return fmt::format("{} of micro-batch {} ({} bytes)", name, microbatch, bytes);
  }
};

/// Activations or gradients that `program` exchanges with stage `peer`, in issue order.
std::vector<Message> peer_messages(const Program& program, int peer_stage, bool activations,
                                   bool send) {
  std::vector<Message> messages;
  for (const OperationInstance& instance : program.instances) {
    const Operation& operation = operation_of(program, instance);
    const auto* peer = std::get_if<PeerOp>(&operation.work);
    if (peer != nullptr && peer->send == send &&
        carries_activations(operation.lane) == activations &&
        program.role.stage + peer->stage_offset == peer_stage)
      messages.push_back({operation.name, *instance.microbatch, message_bytes(program, instance)});
  }
  return messages;
}

void match_peers(const Program& from, const Program& to, bool activations,
                 std::vector<std::string>& errors) {
  const std::vector<Message> sent = peer_messages(from, to.role.stage, activations, true);
  const std::vector<Message> received = peer_messages(to, from.role.stage, activations, false);
  for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
    const std::string out = i < sent.size() ? sent[i].text() : "nothing";
    const std::string in = i < received.size() ? received[i].text() : "nothing";
    const bool same = i < sent.size() && i < received.size() &&
                      sent[i].microbatch == received[i].microbatch &&
                      sent[i].bytes == received[i].bytes;
    if (same) continue;
    errors.push_back(fmt::format("message {} from stage {} to stage {}: sent {}, received {}", i,
                                 from.role.stage, to.role.stage, out, in));
    return;
  }
}

// The collectives of a group that crosses stages, in the order this stage issues them.
std::vector<std::string> cross_stage_collectives(const Program& program, Group group) {
  std::vector<std::string> names;
  for (const OperationInstance& instance : program.instances) {
    const Operation& operation = operation_of(program, instance);
    const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work);
    if (flat != nullptr && flat->collective.group == group)
      names.push_back(fmt::format("{} of {} elements", operation.name, flat->range.size()));
  }
  return names;
}

// A collective's group must always be used from one lane: two lanes of one communicator race.
void check_lanes(const Program& program, std::vector<std::string>& errors) {
  std::map<Group, Lane> lane_of;
  for (const OperationInstance& instance : program.instances) {
    const Operation& operation = operation_of(program, instance);
    const CollectiveOp* collective = std::get_if<CollectiveOp>(&operation.work);
    if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work))
      collective = &flat->collective;
    if (collective == nullptr) continue;
    const auto [entry, fresh] = lane_of.try_emplace(collective->group, operation.lane);
    if (!fresh && entry->second != operation.lane)
      errors.push_back(fmt::format("stage {}: {} uses group {} from a second lane",
                                   program.role.stage, operation.name, name_of(collective->group)));
  }
}

void check_footprints(const Program& program, std::vector<std::string>& errors) {
  for (const OperationInstance& instance : program.instances) {
    const Footprint touched = footprint(program, instance);
    for (const auto* list : {&touched.reads, &touched.writes})
      for (const Address& address : *list) {
        const RegionPlan& region = program.memory.regions[static_cast<std::size_t>(address.region)];
        if (address.slot < region.slots && address.offset >= 0 &&
            address.offset + address.bytes <= region.stride_bytes)
          continue;
        errors.push_back(
            fmt::format("stage {}: {} reaches byte {} of slot {} of region {}, which has {}",
                        program.role.stage, operation_of(program, instance).name,
                        address.offset + address.bytes, address.slot,
                        static_cast<int>(address.region), region.stride_bytes));
        return;
      }
  }
}

// Plays all stages as the executor does: a stage issues its operations in order, each after those
// it waits for, and a communication after the one before it on its lane; a message or a collective
// across stages ends when all its stages have issued it. This assumes nothing of the network, which
// may hold no message until its receiver is there.
class IssueCheck {
 public:
  explicit IssueCheck(const std::vector<Program>& programs)
      : programs_(programs), next_(programs.size(), 0), done_(programs.size()) {
    for (std::size_t s = 0; s < programs.size(); ++s) {
      done_[s].assign(programs[s].instances.size(), false);
      previous_.push_back(previous_on_lane(programs[s]));
    }
  }

  std::vector<std::string> run() {
    for (bool progressed = true; progressed;) {
      progressed = false;
      for (std::size_t s = 0; s < programs_.size(); ++s)
        while (next_[s] < programs_[s].instances.size() && can_issue(s)) {
          issue(s);
          progressed = true;
        }
    }
    std::vector<std::string> errors;
    for (std::size_t s = 0; s < programs_.size(); ++s) {
      if (next_[s] == programs_[s].instances.size()) continue;
      const OperationInstance& stuck = programs_[s].instances[next_[s]];
      errors.push_back(fmt::format("stage {} waits forever before {} (chunk {})",
                                   programs_[s].role.stage, text_of(programs_[s], stuck),
                                   stuck.chunk));
    }
    return errors;
  }

 private:
  // Stages (ordered), activations or gradients; or a group as its own pair.
  using Stream = std::tuple<int, int, int>;

  static std::vector<int> previous_on_lane(const Program& program) {
    std::vector<int> previous;
    std::array<int, kNumLanes> last{};
    last.fill(-1);
    for (std::size_t i = 0; i < program.instances.size(); ++i) {
      const Lane lane = operation_of(program, program.instances[i]).lane;
      previous.push_back(last[static_cast<std::size_t>(lane)]);
      last[static_cast<std::size_t>(lane)] = static_cast<int>(i);
    }
    return previous;
  }

  bool is_done(std::size_t stage, int instance) const {
    return instance < 0 || done_[stage][at(instance)];
  }
  bool can_issue(std::size_t stage) const {
    const OperationInstance& instance = programs_[stage].instances[next_[stage]];
    return is_done(stage, previous_[stage][next_[stage]]) &&
           std::ranges::all_of(waits_of(programs_[stage], instance),
                               [&](int wait) { return is_done(stage, wait); });
  }

  void issue(std::size_t stage) {
    const std::size_t index = next_[stage]++;
    const Program& program = programs_[stage];
    const Operation& operation = operation_of(program, program.instances[index]);
    const int own = program.role.stage;
    if (const auto* peer = std::get_if<PeerOp>(&operation.work)) {
      const int other = own + peer->stage_offset;
      const Stream stream{peer->send ? own : other, peer->send ? other : own,
                          carries_activations(operation.lane) ? 0 : 1};
      meet(stream, peer->send ? 0 : 1, 2, stage, index);
    } else if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work);
               flat != nullptr && members(flat->collective.group) > 1) {
      meet({-1, static_cast<int>(flat->collective.group), 0}, own, members(flat->collective.group),
           stage, index);
    } else {
      done_[stage][index] = true;
    }
  }

  /// Stages with members in a group.
  int members(Group group) const {
    const auto& parallel = programs_.front().plan.parallel;
    if (group == Group::TpPp) return parallel.pp;
    return group == Group::Embedding ? group_size(group, parallel) : 1;
  }

  /// The k-th of one side with the k-th of every other.
  void meet(const Stream& stream, int side, int sides, std::size_t stage, std::size_t index) {
    auto& of_side = arrived_[stream];
    of_side[side].emplace_back(stage, index);
    const std::size_t k = of_side[side].size() - 1;
    if (static_cast<int>(of_side.size()) < sides) return;
    if (std::ranges::any_of(of_side, [&](const auto& entry) { return entry.second.size() <= k; }))
      return;
    for (const auto& [other, arrivals] : of_side)
      done_[arrivals[k].first][arrivals[k].second] = true;
  }

  const std::vector<Program>& programs_;
  std::vector<std::size_t> next_;
  std::vector<std::vector<bool>> done_;
  std::vector<std::vector<int>> previous_;
  std::map<Stream, std::map<int, std::vector<std::pair<std::size_t, std::size_t>>>> arrived_;
};

}  // namespace

std::vector<std::string> program_errors(const std::vector<Program>& programs) {
  std::vector<std::string> errors;
  Schedule schedule{.tasks = {},
                    .num_chunks = programs.front().plan.parallel.vpp,
                    .placement = placement_of(programs.front().plan)};
  bool training = false;
  for (const Program& program : programs) {
    schedule.tasks.push_back(program.tasks);
    training = training || std::ranges::any_of(program.tasks, [](const Task& task) {
                 return task.kind != TaskKind::Forward;
               });
    check_lanes(program, errors);
    check_footprints(program, errors);
    if (!errors.empty()) continue;
    if (const auto error = provenance_error(program)) errors.push_back(*error);
    if (const auto error = race_error(program)) errors.push_back(*error);
  }
  if (training) {
    const auto broken = schedule_errors(schedule, programs.front().plan.num_microbatches());
    errors.insert(errors.end(), broken.begin(), broken.end());
  }
  for (const Program& from : programs)
    for (const Program& to : programs) {
      if (from.role.stage == to.role.stage) continue;
      match_peers(from, to, /*activations=*/true, errors);
      match_peers(from, to, /*activations=*/false, errors);
    }
  const auto same_order = [&](const Program& a, const Program& b, Group group) {
    if (cross_stage_collectives(a, group) != cross_stage_collectives(b, group))
      errors.push_back(fmt::format("stages {} and {} issue different collectives on group {}",
                                   a.role.stage, b.role.stage, name_of(group)));
  };
  for (std::size_t stage = 1; stage < programs.size(); ++stage)
    same_order(programs[0], programs[stage], Group::TpPp);
  if (programs.size() > 1) same_order(programs.front(), programs.back(), Group::Embedding);
  if (errors.empty()) errors = IssueCheck(programs).run();
  return errors;
}

}  // namespace meshplan::program
