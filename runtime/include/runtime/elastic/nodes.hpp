// The nodes of a job that survives losses: which are used, which have failed, which are spare.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.hpp"
#include "runtime/launch/launch.hpp"

namespace meshplan::runtime {

enum class NodeState {
  Healthy,  // ranks run on it
  Spare,    // it waits to be used
  Suspect,  // it has failed and is tried again after a while
  Out,      // it has failed too often, or has left the hosts, and is not used any more
};

/// When a node that has failed is used again. Times are seconds of one clock.
struct NodePolicy {
  double retry_after_s = 60;  // after the first failure; the next three in the window double it
  int most_failures = 3;      // so many in the window leave a node out
  double window_s = 3600;
};

/// A slot whose ranks compute more slowly than those beside them.
struct SlowSlot {
  int slot = 0;      // of a node's ranks in order
  double times = 1;  // as long as others
  bool operator==(const SlowSlot&) const = default;
};

struct JobNode {
  std::string name;  // of the host; "" = this machine
  int slots = 1;     // ranks that it takes
  NodeState state = NodeState::Spare;
  int lost_slots = 0;            // of `slots`: not used before retry_at_s
  double retry_at_s = 0;         // of a suspect
  std::vector<double> failures;  // when, those in the window
  std::string last_failure;      // its cause
  std::vector<SlowSlot> slow;    // ascending; taken for quick from slow_until_s on
  double slow_until_s = 0;
  std::vector<double> slowed;  // when a slot was found slow that was not known to be; in the window

  int usable_slots() const { return state == NodeState::Out ? 0 : slots - lost_slots; }
};

/// Decides which hosts the next job of a run gets. It has no clock: callers say what time it is,
/// and times only grow.
class Nodes {
 public:
  /// @param hosts  of the run, in order; those without a number take one rank a slot given.
  /// Names are unique
  Nodes(const std::vector<HostSlots>& hosts, const NodePolicy& policy);
  /// Those of an earlier supervisor of the same run. @param hosts  that there are now, see
  /// set_hosts
  Nodes(std::vector<JobNode> known, const std::vector<HostSlots>& hosts, const NodePolicy& policy);

  const std::vector<JobNode>& all() const { return nodes_; }
  /// Ranks that can be placed now.
  int usable_slots() const;

  /// The hosts that there are from now on: new ones are spare, and those that are missing are out.
  /// @returns names of the new ones, and of those that came back
  std::vector<std::string> set_hosts(const std::vector<HostSlots>& hosts);

  /// One rank on the node has failed: one of its slots is not used until the node is tried again.
  void lose_rank(const std::string& node, double now_s, const std::string& cause);
  /// The node itself has failed, with all of its slots.
  void lose_node(const std::string& node, double now_s, const std::string& cause);
  /// Slots of suspects whose time has come can be used again.
  /// @param answers  whether a host can be reached; asked of each such node once. Who does not
  /// answer is tried again after the same time
  /// @returns names of the nodes that came back
  template <class Answers>
  std::vector<std::string> retry(double now_s, const Answers& answers) {
    std::vector<std::string> back;
    for (JobNode* node : due(now_s))
      if (answers(node->name)) {
        readmit(*node);
        back.push_back(node->name);
      } else {
        postpone(*node, now_s);
      }
    return back;
  }
  /// When the next suspect is tried again; nothing if there is none.
  std::optional<double> next_retry_s() const;

  /// A slot is slow until it is taken for quick again: after the time that a failure takes, doubled
  /// likewise. What is said again of a known one prolongs that. Failures end it at once.
  /// @param times  as long as others
  void note_slow(const std::string& node, int slot, double times, double now_s);
  /// Takes slots for quick whose time has come. @returns names of their nodes
  std::vector<std::string> forget_slow(double now_s);
  /// When the next slow slot is taken for quick; nothing if there is none.
  std::optional<double> next_forget_s() const;
  /// Ranks of a job on these hosts that take slow slots, and how many times as long they compute.
  std::map<int, double> slow_ranks(const std::vector<HostSlots>& placed) const;

  /// Hosts for `num_nodes` times `per_node` ranks: those in use first, then spare ones. A job on
  /// one node (`num_nodes` = 1) that no node has room for is spread over several if `may_spread`.
  /// Empty if there is no room.
  std::vector<HostSlots> place(int num_nodes, int per_node, bool may_spread) const;
  /// These are healthy from now on, all others that are neither suspect nor out are spare.
  void use(const std::vector<HostSlots>& placed);

 private:
  JobNode* find(const std::string& name);
  void fail(JobNode& node, int slots, double now_s, const std::string& cause);
  std::vector<JobNode*> due(double now_s);
  void readmit(JobNode& node);
  void postpone(JobNode& node, double now_s);
  double pause_s(const std::vector<double>& times) const;

  std::vector<JobNode> nodes_;
  NodePolicy policy_;
};

/// Whose slots each rank of a job takes: ranks fill the hosts in order.
std::vector<std::string> hosts_of_ranks(const std::vector<HostSlots>& placed, int ranks);

/// "a:2,b:2"; empty for this machine alone.
std::string to_string(const std::vector<HostSlots>& hosts);

}  // namespace meshplan::runtime

template <>
struct meshplan::EnumNames<meshplan::runtime::NodeState> {
  static constexpr std::array<std::pair<runtime::NodeState, std::string_view>, 4> value{
      {{runtime::NodeState::Healthy, "healthy"},
       {runtime::NodeState::Spare, "spare"},
       {runtime::NodeState::Suspect, "suspect"},
       {runtime::NodeState::Out, "out"}}};
};
