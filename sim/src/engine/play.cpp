#include "engine/play.hpp"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "clusters/node_types.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "core/limits.hpp"
#include "core/units.hpp"
#include "engine/folding.hpp"
#include "engine/layer_passes.hpp"
#include "schedules/host_thread.hpp"
#include "sim/engine/breakdown.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::CollectiveOp;
using program::Group;
using program::OperationInstance;
using program::PeerOp;
using program::Program;

std::vector<int> compute_runs(const StageTables& tables) {
  const std::vector<int>& order = tables.lane_order[kCompute];
  const auto goes_on = [&](int i, int next) {  // from one to the next
    const OperationInstance& instance = tables.program->instances[at(i)];
    const OperationInstance& following = tables.program->instances[at(next)];
    const bool awaited = tables.wakes[at(i)] != lane_bit(kCompute);
    const bool waits = tables.wait_begin[at(next)] != tables.wait_begin[at(next) + 1];
    const bool single = !instance.operation.pass && !following.operation.pass;
    return single && !awaited && !waits && instance.task && instance.task == following.task &&
           category_of(program::operation_of(*tables.program, instance).phase) ==
               category_of(program::operation_of(*tables.program, following).phase);
  };
  std::vector<int> end(order.size());
  for (std::size_t i = order.size(); i-- > 0;)
    end[i] = i + 1 < order.size() && goes_on(order[i], order[i + 1]) ? end[i + 1]
                                                                     : static_cast<int>(i) + 1;
  return end;
}

StageTables tables_of(const Program& program) {
  StageTables tables{.program = &program};
  tables.lane.reserve(program.instances.size());
  tables.wakes.reserve(program.instances.size());
  tables.wait_begin.reserve(program.instances.size() + 1);
  tables.wait_begin.push_back(0);
  tables.issued.reserve(program.instances.size());
  int issued = 0;
  for (std::size_t i = 0; i < program.instances.size(); ++i) {
    const OperationInstance& instance = program.instances[i];
    const auto lane = static_cast<std::uint8_t>(program::operation_of(program, instance).lane);
    tables.lane.push_back(lane);
    tables.lane_order[lane].push_back(static_cast<int>(i));
    tables.wakes.push_back(lane_bit(lane));
    const std::span<const int> waits = waits_of(program, instance);
    for (const int wait : waits) tables.wakes[at(wait)] |= lane_bit(lane);
    tables.waits.insert(tables.waits.end(), waits.begin(), waits.end());
    tables.wait_begin.push_back(static_cast<int>(tables.waits.size()));
    const auto* pass =
        std::get_if<program::LayerPassOp>(&program::operation_of(program, instance).work);
    issued += pass == nullptr ? 1 : static_cast<int>(pass->operations.size());
    tables.issued.push_back(issued);
  }
  tables.run_end = compute_runs(tables);
  return tables;
}

std::vector<Group> groups_used(const std::vector<Program>& programs) {
  std::set<Group> used;
  for (const Program& program : programs) used.merge(program::groups_used(program));
  return {used.begin(), used.end()};
}

/// Where members meet: a communicator (group and its first class), or a pair of classes and what
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
        folding_(mesh, cluster, groups_used(programs), options.fold) {}

  Play run() {
    for (const Program& program : programs_) play_.stages.push_back(tables_of(program));
    for (int c = 0; c < folding_.num_classes(); ++c) {
      const int rank = folding_.representative(c);
      play_.ranks.push_back({.rank = rank,
                             .stage = mesh_.coordinates(rank).pp,
                             .stands_for = folding_.size(c),
                             .target = {}});
    }
    require_playable();
    for (std::size_t i = 0; i < play_.ranks.size(); ++i) add_operations(static_cast<int>(i));
    finish_meetings();
    time_layer_passes(play_, mesh_);
    return std::move(play_);
  }

 private:
  struct Meetings {  // on one channel
    int number = 0;
    std::vector<int> drafts = {};
  };
  struct Draft {  // of a meeting
    int channel = 0;
    const Price* price = nullptr;   // of the member for which it takes longest
    std::size_t members_begin = 0;  // into Play::members
    int expected = 0;
    int joined = 0;
    int members_on_host = 1;
    bool transfer = false;
    int receiver = -1;
  };

  bool cpu() const { return cluster_.device.kind == DeviceKind::Cpu; }

  /// These operations take 6 s and 1 GiB, and those with their spans as much.
  void require_playable() const {
    std::int64_t operations = 0;
    for (const SimulatedRank& rank : play_.ranks)
      operations += std::ssize(programs_[at(rank.stage)].instances);
    const std::int64_t most =
        options_.record_spans ? limits::kRecordedOperations : limits::kPlayedOperations;
    if (operations > most)
      throw ConfigError(
          fmt::format("{} operations of {} ranks to simulate{}; at most {}{}: use a larger "
                      "micro_batch_size or a "
                      "smaller global_batch_size",
                      operations, play_.ranks.size(),
                      options_.record_spans ? ", with a span of each" : "", most,
                      play_.ranks.size() == at(mesh_.config().pp)
                          ? ""
                          : " where ranks of a stage differ or share a host"));
  }

  int rank_of(int index) const { return play_.ranks[at(index)].rank; }

  /// Ranks that a simulated one stands for inside its domain of `span` ranks.
  int multiplicity(int index, int span) {
    const auto [entry, fresh] = multiplicities_.try_emplace(std::pair(index, span));
    if (fresh) entry->second = folding_.multiplicity(index, span);
    return entry->second;
  }

  /// The domain of `span` ranks around a simulated one: those that hold the same classes are one.
  int domain(int index, int span) {
    const auto [entry, fresh] = domains_.try_emplace(std::pair(index, span));
    if (fresh) {
      std::vector<int> company = folding_.company(index, span);
      company.push_back(span);
      entry->second =
          companies_.try_emplace(std::move(company), static_cast<int>(companies_.size()))
              .first->second;
    }
    return entry->second;
  }

  // ------------------------------------------------------------ resources

  enum class Kind { Cores, HostMemory, Thread, Device, Link };

  int resource(Kind kind, int which, double capacity) {
    const auto [entry, fresh] = resources_.try_emplace(std::pair(static_cast<int>(kind), which));
    if (fresh) entry->second = play_.resources.add_resource(capacity);
    return entry->second;
  }
  int cores_of(int index) {
    return resource(Kind::Cores, domain(index, cluster_.devices_per_node), cluster_.cores_per_host);
  }
  int memory_of(int index) {
    return resource(Kind::HostMemory, domain(index, cluster_.devices_per_node),
                    cluster_.host_memory_gb_per_s * kGigabyte);
  }
  int device_of(int index) { return resource(Kind::Device, index, 1); }
  int thread_of(int index) { return resource(Kind::Thread, index, 1); }
  /// The cluster as that rank's node is made.
  const Cluster& around(int index) const { return types_[at(node_type(cluster_, rank_of(index)))]; }
  int ranks_per_link(int index, int level) const {
    return around(index).fabric[at(level)].ranks_per_link;
  }
  int link_of(int index, int level) {
    const int levels = static_cast<int>(cluster_.fabric.size());
    return resource(Kind::Link, domain(index, ranks_per_link(index, level)) * levels + level,
                    link_capacity_bytes_per_s(around(index), level));
  }

  void use_host_memory(std::vector<Usage>& usages, int index, double bytes_per_s) {
    if (bytes_per_s <= 0 || cluster_.host_memory_gb_per_s <= 0) return;
    usages.push_back(
        {memory_of(index), bytes_per_s * multiplicity(index, cluster_.devices_per_node)});
  }

  UsageSpan work_usages(int index, const Price& price, bool on_host_lane) {
    std::vector<Usage> usages;
    if (options_.contention && cpu()) {
      usages.push_back(
          {cores_of(index), static_cast<double>(multiplicity(index, cluster_.devices_per_node))});
      use_host_memory(usages, index, price.memory_bytes_per_s);
    } else if (options_.contention && !on_host_lane) {
      usages.push_back({device_of(index), 1});
    }
    return play_.resources.add_usages(usages);
  }

  /// What member `index` gives to a meeting. CPU ranks that outnumber the cores of a host in one
  /// group hold all cores together: the group's duration already contains their taking turns.
  /// Transfers between GPUs are priced as if all ranks of a node sent at once, and occupy a few of
  /// a device's units: they share nothing more. (Stages that delayed each other by what little it
  /// is came to a steady pace only after hundreds of micro-batches.)
  void add_meeting_usages(std::vector<Usage>& usages, const Draft& draft, int index) {
    if (draft.transfer && !cluster_.communication.needs_host) return;
    const Price& price = *draft.price;
    const bool copies = !draft.transfer || index == draft.receiver;
    const bool sends = !draft.transfer || index != draft.receiver;
    if (cluster_.communication.needs_host && copies) usages.push_back({thread_of(index), 1});
    if (cpu() && copies) {
      const double part =
          std::min(1.0, static_cast<double>(cluster_.cores_per_host) / draft.members_on_host);
      usages.push_back({cores_of(index), part * multiplicity(index, cluster_.devices_per_node)});
      use_host_memory(usages, index, price.memory_bytes_per_s);
    }
    if (!cpu() && cluster_.communication.device_share > 0)
      usages.push_back({device_of(index), cluster_.communication.device_share});
    const bool shared_memory =
        cpu() && price.level == 0;  // its copies are counted as memory traffic
    if (sends && price.level && !shared_memory && price.link_bytes_per_s > 0) {
      const int per_link = ranks_per_link(index, *price.level);
      usages.push_back(
          {link_of(index, *price.level), price.link_bytes_per_s * multiplicity(index, per_link)});
    }
  }

  // ------------------------------------------------------------ operations

  void add_operations(int index) {
    const Program& program = programs_[at(play_.ranks[at(index)].stage)];
    prices_.push_back(price_program(program, rank_of(index), mesh_, cluster_));
    const ProgramPrices& prices = prices_.back();
    constexpr int kUnknown = -1;
    std::vector<int> known(2 * prices.distinct.size(), kUnknown);  // works by price and lane
    std::vector<int>& target = play_.ranks[at(index)].target;
    target.reserve(program.instances.size());
    next_.clear();
    members_of_.clear();
    for (std::size_t i = 0; i < program.instances.size(); ++i) {
      const program::Operation& operation = program::operation_of(program, program.instances[i]);
      const Price& price = prices.of(i);
      const Member member{index, static_cast<int>(i)};
      const CollectiveOp* collective = collective_of(operation);
      if (const auto* peer = std::get_if<PeerOp>(&operation.work)) {
        target.push_back(~join_transfer(member, *peer, operation.lane, price));
      } else if (collective != nullptr && !is_alone(index, collective->group)) {
        target.push_back(~join_collective(member, collective->group, price));
      } else {
        const bool host = operation.lane == program::Lane::Host ||
                          operation.lane == program::Lane::FromHost ||
                          operation.lane == program::Lane::ToHost;
        int& work = known[2 * at(prices.of_instance[i]) + (host ? 1 : 0)];
        if (work == kUnknown) {
          work = static_cast<int>(play_.works.size());
          play_.works.push_back(
              collective != nullptr
                  ? Work{price.seconds,
                         usages_of(
                             {.price = &price,
                              .members_on_host = members_of(collective->group, index).on_host},
                             std::span(&member, 1))}
                  : Work{price.seconds, work_usages(index, price, host)});
        }
        target.push_back(work);
      }
    }
  }

  /// All members of the group do the same as this rank: where the device moves data by itself, a
  /// collective of theirs is this rank's own work.
  bool is_alone(int index, Group group) {
    return !cluster_.communication.needs_host && members_of(group, index).classes.size() == 1;
  }

  /// The k-th operation of a rank on a channel meets the k-th of every other member.
  Draft& join(const Channel& channel, int expected, const Member& member, const Price& price,
              int& meeting) {
    const auto [entry, fresh] = channels_.try_emplace(channel);
    Meetings& meetings = entry->second;
    if (fresh) meetings.number = static_cast<int>(channels_.size()) - 1;
    const std::size_t k = next_[channel]++;
    if (k == meetings.drafts.size()) {
      meetings.drafts.push_back(static_cast<int>(drafts_.size()));
      drafts_.push_back({.channel = meetings.number,
                         .members_begin = play_.members.size(),
                         .expected = expected});
      play_.members.resize(play_.members.size() + at(expected));
    }
    meeting = meetings.drafts[k];
    Draft& draft = drafts_[at(meeting)];
    require_invariant(draft.joined < draft.expected, "a meeting has its members and no others");
    if (draft.price == nullptr || price.seconds > draft.price->seconds) draft.price = &price;
    play_.members[draft.members_begin + at(draft.joined++)] = member;
    return draft;
  }

  /// Who of a group is simulated, and how many of it share the first one's host.
  struct GroupMembers {
    std::vector<int> classes;
    int on_host = 1;
  };

  const GroupMembers& members_of(Group group, int index) {
    const auto [entry, fresh] = members_of_.try_emplace(group);
    if (!fresh) return entry->second;
    const std::vector<int> ranks = mesh_.group(group, rank_of(index));
    entry->second = {.classes = folding_.classes_of(ranks),
                     .on_host = place(cluster_, ranks).on_first_host};
    return entry->second;
  }

  int join_collective(const Member& member, Group group, const Price& price) {
    const GroupMembers& members = members_of(group, member.rank);
    int meeting = 0;
    // A class has one group of each kind.
    Draft& draft = join({static_cast<int>(group), members.classes.front(), -1},
                        static_cast<int>(members.classes.size()), member, price, meeting);
    draft.members_on_host = members.on_host;
    return meeting;
  }

  int join_transfer(const Member& member, const PeerOp& peer, program::Lane lane,
                    const Price& price) {
    const int other = folding_.class_of(peer_rank(mesh_, rank_of(member.rank), peer));
    const int source = peer.send ? member.rank : other;
    const int destination = peer.send ? other : member.rank;
    constexpr int kTransfers = -1;  // no group has this number
    int meeting = 0;
    Draft& draft = join({kTransfers, std::int64_t{source} * folding_.num_classes() + destination,
                         program::carries_activations(lane) ? 0 : 1},
                        2, member, price, meeting);
    draft.transfer = true;
    if (!peer.send) draft.receiver = member.rank;
    return meeting;
  }

  UsageSpan usages_of(const Draft& draft, std::span<const Member> members) {
    std::vector<Usage> usages;
    if (options_.contention)
      for (const Member& member : members) add_meeting_usages(usages, draft, member.rank);
    return play_.resources.add_usages(merged(std::move(usages)));
  }

  void finish_meetings() {
    // On a channel meet the same ranks: at one price they use the same.
    std::map<std::pair<int, const Price*>, UsageSpan> known;
    play_.meetings.reserve(drafts_.size());
    for (const Draft& draft : drafts_) {
      check_complete(draft);
      const auto [usages, fresh] = known.try_emplace({draft.channel, draft.price});
      if (fresh)
        usages->second = usages_of(
            draft, std::span(play_.members).subspan(draft.members_begin, at(draft.joined)));
      play_.meetings.push_back(
          {.seconds = draft.price->seconds * progress_factor(programs_.front().plan, cluster_),
           .usages = usages->second,
           .members_begin = draft.members_begin,
           .num_members = draft.joined,
           .receiver = draft.receiver,
           .includes_wake = !draft.transfer && draft.price->source != PriceSource::Formula});
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
    if (draft.joined == draft.expected && (!draft.transfer || draft.receiver >= 0)) return;
    const Member& member = play_.members[draft.members_begin];
    const SimulatedRank& rank = play_.ranks[static_cast<std::size_t>(member.rank)];
    const Program& program = programs_[static_cast<std::size_t>(rank.stage)];
    const auto& instance = program.instances[static_cast<std::size_t>(member.instance)];
    throw InvariantError(fmt::format("rank {} issues '{}', but {} of its {} members do", rank.rank,
                                     program::text_of(program, instance), draft.joined,
                                     draft.expected));
  }

  const std::vector<Program>& programs_;
  const Cluster& cluster_;
  std::vector<Cluster> types_;  // as_if_all(), by node type
  const program::Mesh& mesh_;
  const SimulationOptions& options_;
  Folding folding_;
  Play play_;
  std::map<std::pair<int, int>, int> resources_;
  std::map<std::pair<int, int>, int> multiplicities_;  // by simulated rank and span
  std::map<std::pair<int, int>, int> domains_;         // likewise
  std::map<std::vector<int>, int> companies_;          // domains by what they hold
  std::deque<ProgramPrices> prices_;                   // by simulated rank
  std::map<Channel, Meetings> channels_;
  std::map<Channel, std::size_t> next_;       // of the rank that is being added
  std::map<Group, GroupMembers> members_of_;  // of the rank that is being added
  std::vector<Draft> drafts_;
};

}  // namespace

Play build_play(const std::vector<Program>& programs, const Cluster& cluster,
                const program::Mesh& mesh, const SimulationOptions& options) {
  return WorldBuilder(programs, cluster, mesh, options).run();
}

}  // namespace meshplan::sim
