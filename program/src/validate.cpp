#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <tuple>

#include "program/address.hpp"
#include "program/cost.hpp"
#include "program/lower.hpp"

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

std::vector<Message> peer_messages(const Program& program, Lane lane, bool send) {
  std::vector<Message> messages;
  for (const OperationInstance& instance : program.instances) {
    const Operation& operation = operation_of(program, instance);
    const auto* peer = std::get_if<PeerOp>(&operation.work);
    if (peer != nullptr && operation.lane == lane && peer->send == send)
      messages.push_back({operation.name, instance.microbatch, message_bytes(program, instance)});
  }
  return messages;
}

void match_peers(const Program& from, const Program& to, Lane lane,
                 std::vector<std::string>& errors) {
  const std::vector<Message> sent = peer_messages(from, lane, true);
  const std::vector<Message> received = peer_messages(to, lane, false);
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

// A forward may not take a slot whose micro-batch still waits for its backward.
void check_slots(const Program& program, std::vector<std::string>& errors) {
  std::map<int, int> held;  // slot -> micro-batch
  std::map<int, int> slot_of;
  for (const OperationInstance& instance : program.instances)
    if (instance.task >= 0) slot_of[instance.task] = instance.saved_slot;
  const bool training = std::ranges::any_of(
      program.tasks, [](const Task& task) { return task.kind != TaskKind::Forward; });
  if (!training) return;
  for (int task = 0; task < static_cast<int>(program.tasks.size()); ++task) {
    const Task& work = program.tasks[static_cast<std::size_t>(task)];
    const int slot = slot_of[task];
    if (work.kind == TaskKind::Forward) {
      const auto [entry, fresh] = held.try_emplace(slot, work.microbatch);
      if (!fresh)
        errors.push_back(
            fmt::format("stage {}: micro-batch {} overwrites slot {} of micro-batch {}",
                        program.role.stage, work.microbatch, slot, entry->second));
    } else {
      held.erase(slot);
    }
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

}  // namespace

std::vector<std::string> program_errors(const std::vector<Program>& programs) {
  std::vector<std::string> errors;
  Schedule schedule;
  bool training = false;
  for (const Program& program : programs) {
    schedule.tasks.push_back(program.tasks);
    training = training || std::ranges::any_of(program.tasks, [](const Task& task) {
                 return task.kind != TaskKind::Forward;
               });
    check_lanes(program, errors);
    check_slots(program, errors);
    check_footprints(program, errors);
  }
  if (training) {
    const auto broken = schedule_errors(schedule, programs.front().plan.num_microbatches());
    errors.insert(errors.end(), broken.begin(), broken.end());
  }
  for (std::size_t stage = 0; stage + 1 < programs.size(); ++stage) {
    match_peers(programs[stage], programs[stage + 1], Lane::PpForward, errors);
    match_peers(programs[stage + 1], programs[stage], Lane::PpBackward, errors);
  }
  const auto same_order = [&](const Program& a, const Program& b, Group group) {
    if (cross_stage_collectives(a, group) != cross_stage_collectives(b, group))
      errors.push_back(fmt::format("stages {} and {} issue different collectives on group {}",
                                   a.role.stage, b.role.stage, name_of(group)));
  };
  for (std::size_t stage = 1; stage < programs.size(); ++stage)
    same_order(programs[0], programs[stage], Group::TpPp);
  if (programs.size() > 1) same_order(programs.front(), programs.back(), Group::Embedding);
  return errors;
}

}  // namespace meshplan::program
