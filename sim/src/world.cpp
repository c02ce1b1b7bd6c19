#include "world.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <tuple>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/limits.hpp"
#include "core/units.hpp"
#include "host_thread.hpp"
#include "node_types.hpp"
#include "sim/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::CollectiveOp;
using program::Group;
using program::OperationInstance;
using program::PeerOp;
using program::Program;

const CollectiveOp* collective_of(const program::Operation& operation) {
  if (const auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work))
    return &flat->collective;
  return std::get_if<CollectiveOp>(&operation.work);
}

StageTables tables_of(const Program& program) {
  StageTables tables{.program = &program};
  tables.wait_begin.push_back(0);
  for (std::size_t i = 0; i < program.instances.size(); ++i) {
    const OperationInstance& instance = program.instances[i];
    const auto lane = static_cast<std::uint8_t>(program::operation_of(program, instance).lane);
    tables.lane.push_back(lane);
    tables.lane_order[lane].push_back(static_cast<int>(i));
    tables.waits.insert(tables.waits.end(), instance.waits.begin(), instance.waits.end());
    tables.wait_begin.push_back(static_cast<int>(tables.waits.size()));
  }
  return tables;
}

std::vector<Group> groups_used(const std::vector<Program>& programs) {
  std::set<Group> used;
  const auto note = [&](const program::Operation& operation) {
    if (const CollectiveOp* collective = collective_of(operation)) used.insert(collective->group);
  };
  for (const Program& program : programs) {
    for (const auto& operation : program.step_operations) note(operation);
    for (const auto& block : program.blocks) {
      for (const auto& operation : block.forward) note(operation);
      for (const auto& operation : block.backward) note(operation);
    }
  }
  return {used.begin(), used.end()};
}

/// Where members meet: a communicator (group and its first rank), or a pair of ranks and what
/// passes between them.
using Channel = std::tuple<int, std::int64_t, int>;

class WorldBuilder {
 public:
  WorldBuilder(const std::vector<Program>& programs, const Cluster& cluster,
               const program::Mesh& mesh, const SimulationOptions& options)
      : programs_(programs),
        cluster_(cluster),
        types_(by_node_type(cluster)),
        mesh_(mesh),
        options_(options),
        folding_(mesh, cluster) {}

  World run() {
    for (const Program& program : programs_) world_.stages.push_back(tables_of(program));
    world_.folded = options_.fold && folding_.is_exact(groups_used(programs_));
    choose_ranks();
    require_playable();
    for (std::size_t i = 0; i < world_.ranks.size(); ++i) add_operations(static_cast<int>(i));
    finish_meetings();
    return std::move(world_);
  }

 private:
  struct Draft {  // of a meeting
    Price price;
    int members_on_host = 1;
    int expected = 0;
    bool transfer = false;
    std::vector<Member> members;
    int receiver = -1;
  };

  bool cpu() const { return cluster_.device.kind == DeviceKind::Cpu; }

  /// 2^24 operations with their times take 8 s and 2 GiB.
  void require_playable() const {
    std::int64_t operations = 0;
    for (const SimulatedRank& rank : world_.ranks)
      operations += std::ssize(programs_[at(rank.stage)].instances);
    const std::int64_t most =
        options_.record_spans ? limits::kRecordedOperations : limits::kPlayedOperations;
    if (operations > most)
      throw ConfigError(fmt::format(
          "{} operations of {} ranks to simulate; at most {}{}: use a larger micro_batch_size or a "
          "smaller global_batch_size",
          operations, world_.ranks.size(), most,
          world_.folded ? "" : " where ranks of a stage differ or share a host"));
  }

  void choose_ranks() {
    index_of_.assign(static_cast<std::size_t>(mesh_.world_size()), -1);
    const auto add = [&](int rank) {
      index_of_[static_cast<std::size_t>(rank)] = static_cast<int>(world_.ranks.size());
      world_.ranks.push_back({.rank = rank, .stage = mesh_.coordinates(rank).pp, .target = {}});
    };
    if (world_.folded)
      for (int stage = 0; stage < mesh_.config().pp; ++stage) add(folding_.representative(stage));
    else
      for (int rank = 0; rank < mesh_.world_size(); ++rank) add(rank);
  }

  /// Ranks that a simulated one stands for inside its domain of `span` ranks.
  int multiplicity(int index, int span) {
    if (!world_.folded) return 1;
    const auto key = std::pair(index, span);
    const auto found = multiplicities_.find(key);
    if (found != multiplicities_.end()) return found->second;
    const int stage = world_.ranks[static_cast<std::size_t>(index)].stage;
    return multiplicities_[key] = folding_.multiplicity(stage, span);
  }

  // ------------------------------------------------------------ resources

  enum class Kind { Cores, HostMemory, Thread, Device, Link };

  int resource(Kind kind, int which, double capacity) {
    const auto [entry, fresh] = resources_.try_emplace(std::pair(static_cast<int>(kind), which));
    if (fresh) entry->second = world_.resources.add_resource(capacity);
    return entry->second;
  }
  int cores_of(int rank) {
    return resource(Kind::Cores, rank / cluster_.devices_per_node, cluster_.cores_per_host);
  }
  int memory_of(int rank) {
    return resource(Kind::HostMemory, rank / cluster_.devices_per_node,
                    cluster_.host_memory_gb_per_s * kGigabyte);
  }
  int device_of(int rank) { return resource(Kind::Device, rank, 1); }
  int thread_of(int rank) { return resource(Kind::Thread, rank, 1); }
  /// The cluster as that rank's node is made.
  const Cluster& around(int rank) const { return types_[at(node_type(cluster_, rank))]; }
  int ranks_per_link(int rank, int level) const {
    return around(rank).fabric[static_cast<std::size_t>(level)].ranks_per_link;
  }
  int link_of(int rank, int level) {
    const int levels = static_cast<int>(cluster_.fabric.size());
    return resource(Kind::Link, rank / ranks_per_link(rank, level) * levels + level,
                    link_capacity_bytes_per_s(around(rank), level));
  }

  void use_host_memory(std::vector<Usage>& usages, int index, double bytes_per_s) {
    if (bytes_per_s <= 0 || cluster_.host_memory_gb_per_s <= 0) return;
    const int rank = world_.ranks[static_cast<std::size_t>(index)].rank;
    usages.push_back(
        {memory_of(rank), bytes_per_s * multiplicity(index, cluster_.devices_per_node)});
  }

  UsageSpan work_usages(int index, const Price& price, bool on_host_lane) {
    std::vector<Usage> usages;
    const int rank = world_.ranks[static_cast<std::size_t>(index)].rank;
    if (options_.contention && cpu()) {
      usages.push_back(
          {cores_of(rank), static_cast<double>(multiplicity(index, cluster_.devices_per_node))});
      use_host_memory(usages, index, price.memory_bytes_per_s);
    } else if (options_.contention && !on_host_lane) {
      usages.push_back({device_of(rank), 1});
    }
    return world_.resources.add_usages(usages);
  }

  /// What member `index` gives to a meeting. CPU ranks that outnumber the cores of a host in one
  /// group hold all cores together: the group's duration already contains their taking turns.
  void add_meeting_usages(std::vector<Usage>& usages, const Draft& draft, int index) {
    const Price& price = draft.price;
    const int rank = world_.ranks[static_cast<std::size_t>(index)].rank;
    const bool copies = !draft.transfer || index == draft.receiver;
    const bool sends = !draft.transfer || index != draft.receiver;
    if (cluster_.communication.needs_host && copies) usages.push_back({thread_of(rank), 1});
    if (cpu() && copies) {
      const double part =
          std::min(1.0, static_cast<double>(cluster_.cores_per_host) / draft.members_on_host);
      usages.push_back({cores_of(rank), part * multiplicity(index, cluster_.devices_per_node)});
      use_host_memory(usages, index, price.memory_bytes_per_s);
    }
    if (!cpu() && cluster_.communication.device_share > 0)
      usages.push_back({device_of(rank), cluster_.communication.device_share});
    const bool shared_memory =
        cpu() && price.level == 0;  // its copies are counted as memory traffic
    if (sends && price.level >= 0 && !shared_memory && price.link_bytes_per_s > 0) {
      const int per_link = ranks_per_link(rank, price.level);
      usages.push_back(
          {link_of(rank, price.level), price.link_bytes_per_s * multiplicity(index, per_link)});
    }
  }

  // ------------------------------------------------------------ operations

  void add_operations(int index) {
    const int stage = world_.ranks[static_cast<std::size_t>(index)].stage;
    const Program& program = programs_[static_cast<std::size_t>(stage)];
    const int rank = world_.ranks[static_cast<std::size_t>(index)].rank;
    const ProgramPrices prices = price_program(program, rank, mesh_, cluster_);
    std::map<std::tuple<double, double, bool>, int> known;
    std::vector<int>& target = world_.ranks[static_cast<std::size_t>(index)].target;
    next_.clear();
    members_of_.clear();
    for (std::size_t i = 0; i < program.instances.size(); ++i) {
      const program::Operation& operation = program::operation_of(program, program.instances[i]);
      const Price& price = prices.per_instance[i];
      if (const CollectiveOp* collective = collective_of(operation)) {
        target.push_back(~join_collective(index, static_cast<int>(i), collective->group, price));
      } else if (const auto* peer = std::get_if<PeerOp>(&operation.work)) {
        target.push_back(~join_transfer(index, static_cast<int>(i), *peer, operation.lane, price));
      } else {
        const bool host = operation.lane == program::Lane::Host ||
                          operation.lane == program::Lane::FromHost ||
                          operation.lane == program::Lane::ToHost;
        const auto [entry, fresh] =
            known.try_emplace(std::tuple(price.seconds, price.memory_bytes_per_s, host));
        if (fresh) {
          entry->second = static_cast<int>(world_.works.size());
          world_.works.push_back({price.seconds, work_usages(index, price, host)});
        }
        target.push_back(entry->second);
      }
    }
  }

  /// The k-th operation of a rank on a channel meets the k-th of every other member.
  Draft& join(const Channel& channel, const Member& member, const Price& price, int& meeting) {
    std::vector<int>& meetings = channels_[channel];
    const std::size_t k = next_[channel]++;
    if (k == meetings.size()) {
      meetings.push_back(static_cast<int>(drafts_.size()));
      drafts_.emplace_back();
    }
    meeting = meetings[k];
    Draft& draft = drafts_[static_cast<std::size_t>(meeting)];
    if (draft.members.empty() || price.seconds > draft.price.seconds) draft.price = price;
    draft.members.push_back(member);
    return draft;
  }

  /// Simulated ranks of a group and how many of it share the first one's host.
  struct GroupMembers {
    int first = 0;
    int simulated = 0;
    int on_host = 1;
  };

  const GroupMembers& members_of(Group group, int rank) {
    const auto [entry, fresh] = members_of_.try_emplace(group);
    if (!fresh) return entry->second;
    const std::vector<int> ranks = mesh_.group(group, rank);
    entry->second = {
        .first = ranks.front(),
        .simulated = static_cast<int>(std::ranges::count_if(
            ranks, [&](int other) { return index_of_[static_cast<std::size_t>(other)] >= 0; })),
        .on_host = place(cluster_, ranks).on_first_host};
    return entry->second;
  }

  int join_collective(int index, int instance, Group group, const Price& price) {
    const int rank = world_.ranks[static_cast<std::size_t>(index)].rank;
    const GroupMembers& members = members_of(group, rank);
    int meeting = 0;
    Draft& draft =
        join({static_cast<int>(group), members.first, -1}, {index, instance}, price, meeting);
    draft.expected = members.simulated;
    draft.members_on_host = members.on_host;
    return meeting;
  }

  int join_transfer(int index, int instance, const PeerOp& peer, program::Lane lane,
                    const Price& price) {
    const int rank = world_.ranks[static_cast<std::size_t>(index)].rank;
    const int other = peer_rank(mesh_, rank, peer);
    const int source = peer.send ? rank : other;
    const int destination = peer.send ? other : rank;
    constexpr int kTransfers = -1;  // no group has this number
    int meeting = 0;
    Draft& draft = join({kTransfers, std::int64_t{source} * mesh_.world_size() + destination,
                         program::carries_activations(lane) ? 0 : 1},
                        {index, instance}, price, meeting);
    draft.expected = 2;
    draft.transfer = true;
    if (!peer.send) draft.receiver = index;
    return meeting;
  }

  void finish_meetings() {
    for (const Draft& draft : drafts_) {
      check_complete(draft);
      std::vector<Usage> usages;
      if (options_.contention)
        for (const Member& member : draft.members) add_meeting_usages(usages, draft, member.rank);
      world_.meetings.push_back(
          {.seconds = draft.price.seconds * progress_factor(programs_.front().plan, cluster_),
           .usages = world_.resources.add_usages(merged(std::move(usages))),
           .members_begin = world_.members.size(),
           .num_members = static_cast<int>(draft.members.size()),
           .receiver = draft.receiver,
           .includes_wake = !draft.transfer && draft.price.source != PriceSource::Formula});
      world_.members.insert(world_.members.end(), draft.members.begin(), draft.members.end());
    }
  }

  /// One usage per resource: members may share one.
  static std::vector<Usage> merged(std::vector<Usage> usages) {
    std::ranges::sort(usages, {}, &Usage::resource);
    std::vector<Usage> sums;
    for (const Usage& usage : usages) {
      if (!sums.empty() && sums.back().resource == usage.resource)
        sums.back().demand += usage.demand;
      else
        sums.push_back(usage);
    }
    return sums;
  }

  void check_complete(const Draft& draft) const {
    if (static_cast<int>(draft.members.size()) == draft.expected &&
        (!draft.transfer || draft.receiver >= 0))
      return;
    const Member& member = draft.members.front();
    const SimulatedRank& rank = world_.ranks[static_cast<std::size_t>(member.rank)];
    const Program& program = programs_[static_cast<std::size_t>(rank.stage)];
    const auto& instance = program.instances[static_cast<std::size_t>(member.instance)];
    throw InvariantError(
        fmt::format("rank {} issues '{}' (micro-batch {}), but {} of its {} members do", rank.rank,
                    program::operation_of(program, instance).name, instance.microbatch,
                    draft.members.size(), draft.expected));
  }

  const std::vector<Program>& programs_;
  const Cluster& cluster_;
  std::vector<Cluster> types_;  // as_if_all(), by node type
  const program::Mesh& mesh_;
  const SimulationOptions& options_;
  Folding folding_;
  World world_;
  std::vector<int> index_of_;  // world rank -> index into World::ranks, -1 = stands behind another
  std::map<std::pair<int, int>, int> resources_;
  std::map<std::pair<int, int>, int> multiplicities_;
  std::map<Channel, std::vector<int>> channels_;
  std::map<Channel, std::size_t> next_;       // of the rank that is being added
  std::map<Group, GroupMembers> members_of_;  // of the rank that is being added
  std::vector<Draft> drafts_;
};

}  // namespace

World build_world(const std::vector<Program>& programs, const Cluster& cluster,
                  const program::Mesh& mesh, const SimulationOptions& options) {
  return WorldBuilder(programs, cluster, mesh, options).run();
}

}  // namespace meshplan::sim
