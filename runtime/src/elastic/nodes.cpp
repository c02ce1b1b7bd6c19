#include "runtime/elastic/nodes.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

namespace meshplan::runtime {

Nodes::Nodes(const std::vector<HostSlots>& hosts, const NodePolicy& policy) : policy_(policy) {
  set_hosts(hosts);
}

Nodes::Nodes(std::vector<JobNode> known, const std::vector<HostSlots>& hosts,
             const NodePolicy& policy)
    : nodes_(std::move(known)), policy_(policy) {
  set_hosts(hosts);
}

int Nodes::usable_slots() const {
  int slots = 0;
  for (const JobNode& node : nodes_) slots += node.usable_slots();
  return slots;
}

std::vector<std::string> Nodes::set_hosts(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> joined;
  for (const HostSlots& host : hosts) {
    JobNode* known = find(host.name);
    if (known == nullptr) {
      nodes_.push_back({.name = host.name, .slots = host.slots});
      joined.push_back(host.name);
      continue;
    }
    const bool left = known->state == NodeState::Out && known->failures.empty();
    if (left) readmit(*known);
    if (left || host.slots > known->slots) joined.push_back(host.name);
    known->slots = host.slots;
    known->lost_slots = std::min(known->lost_slots, host.slots);
  }
  for (JobNode& node : nodes_)
    if (std::ranges::find(hosts, node.name, &HostSlots::name) == hosts.end()) {
      node.state = NodeState::Out;
      node.failures.clear();  // it has left, and may come back
      node.slow.clear();
      node.last_failure = "is not among the hosts any more";
    }
  return joined;
}

void Nodes::lose_rank(const std::string& node, double now_s, const std::string& cause) {
  if (JobNode* lost = find(node)) fail(*lost, 1, now_s, cause);
}

void Nodes::lose_node(const std::string& node, double now_s, const std::string& cause) {
  if (JobNode* lost = find(node)) fail(*lost, lost->slots, now_s, cause);
}

void Nodes::fail(JobNode& node, int slots, double now_s, const std::string& cause) {
  std::erase_if(node.failures, [&](double time) { return time < now_s - policy_.window_s; });
  node.failures.push_back(now_s);
  node.lost_slots = std::min(node.slots, node.lost_slots + slots);
  node.slow.clear();  // which of its slots are left is not known
  node.last_failure = cause;
  // The last one is never left out: there would be nothing to go on with.
  const auto may_be_used = [&](const JobNode& other) {
    return &other != &node && other.state != NodeState::Out;
  };
  if (static_cast<int>(node.failures.size()) >= policy_.most_failures &&
      std::ranges::any_of(nodes_, may_be_used)) {
    node.state = NodeState::Out;
    return;
  }
  node.state = NodeState::Suspect;
  node.retry_at_s = now_s + pause_s(node.failures);
}

/// Doubled with each of the first times that something happened.
double Nodes::pause_s(const std::vector<double>& times) const {
  constexpr int kMostDoublings = 3;
  const int doublings = static_cast<int>(times.size()) - 1;
  return std::ldexp(policy_.retry_after_s, std::min(doublings, kMostDoublings));
}

std::vector<JobNode*> Nodes::due(double now_s) {
  std::vector<JobNode*> nodes;
  for (JobNode& node : nodes_)
    if (node.state == NodeState::Suspect && node.lost_slots > 0 && now_s >= node.retry_at_s)
      nodes.push_back(&node);
  return nodes;
}

void Nodes::readmit(JobNode& node) {
  node.lost_slots = 0;
  node.state = NodeState::Spare;
}

void Nodes::postpone(JobNode& node, double now_s) {
  node.retry_at_s = now_s + pause_s(node.failures);
}

void Nodes::note_slow(const std::string& node, int slot, double times, double now_s) {
  JobNode* found = find(node);
  if (found == nullptr) return;
  const auto known = std::ranges::find(found->slow, slot, &SlowSlot::slot);
  if (known == found->slow.end()) {
    found->slow.push_back({slot, times});
    std::ranges::sort(found->slow, {}, &SlowSlot::slot);
    std::erase_if(found->slowed, [&](double time) { return time < now_s - policy_.window_s; });
    found->slowed.push_back(now_s);
  } else {
    known->times = times;
  }
  found->slow_until_s = now_s + pause_s(found->slowed);
}

std::vector<std::string> Nodes::forget_slow(double now_s) {
  std::vector<std::string> names;
  for (JobNode& node : nodes_)
    if (!node.slow.empty() && now_s >= node.slow_until_s) {
      node.slow.clear();
      names.push_back(node.name);
    }
  return names;
}

std::optional<double> Nodes::next_forget_s() const {
  std::optional<double> next;
  for (const JobNode& node : nodes_)
    if (!node.slow.empty()) next = std::min(next.value_or(node.slow_until_s), node.slow_until_s);
  return next;
}

std::map<int, double> Nodes::slow_ranks(const std::vector<HostSlots>& placed) const {
  std::map<int, double> ranks;
  int first = 0;  // of the host
  for (const HostSlots& host : placed) {
    const auto node = std::ranges::find(nodes_, host.name, &JobNode::name);
    if (node != nodes_.end())
      for (const SlowSlot& slow : node->slow)
        if (slow.slot < host.slots) ranks.emplace(first + slow.slot, slow.times);
    first += host.slots;
  }
  return ranks;
}

std::optional<double> Nodes::next_retry_s() const {
  std::optional<double> next;
  for (const JobNode& node : nodes_)
    if (node.state == NodeState::Suspect && node.lost_slots > 0)
      next = std::min(next.value_or(node.retry_at_s), node.retry_at_s);
  return next;
}

std::vector<HostSlots> Nodes::place(int num_nodes, int per_node, bool may_spread) const {
  std::vector<const JobNode*> order;
  for (const JobNode& node : nodes_)
    if (node.usable_slots() > 0) order.push_back(&node);
  // Ranks stay where they are as far as possible; suspects come last.
  const auto reluctance = [](const JobNode* node) {
    return node->state == NodeState::Healthy ? 0 : node->state == NodeState::Spare ? 1 : 2;
  };
  std::ranges::stable_sort(order, {}, reluctance);
  std::vector<HostSlots> placed;
  for (const JobNode* node : order) {
    if (static_cast<int>(placed.size()) == num_nodes) break;
    if (node->usable_slots() >= per_node)
      placed.push_back({.name = node->name, .slots = per_node, .is_limit = true});
  }
  if (static_cast<int>(placed.size()) == num_nodes) return placed;
  placed.clear();
  int left = per_node;
  if (num_nodes != 1 || !may_spread) return {};
  for (const JobNode* node : order) {
    const int taken = std::min(left, node->usable_slots());
    if (taken > 0) placed.push_back({.name = node->name, .slots = taken, .is_limit = true});
    left -= taken;
  }
  return left == 0 ? placed : std::vector<HostSlots>{};
}

void Nodes::use(const std::vector<HostSlots>& placed) {
  for (JobNode& node : nodes_) {
    const bool used = std::ranges::find(placed, node.name, &HostSlots::name) != placed.end();
    if (node.state == NodeState::Out || node.lost_slots > 0) continue;
    node.state = used ? NodeState::Healthy : NodeState::Spare;
  }
}

JobNode* Nodes::find(const std::string& name) {
  const auto found = std::ranges::find(nodes_, name, &JobNode::name);
  return found == nodes_.end() ? nullptr : &*found;
}

std::vector<std::string> hosts_of_ranks(const std::vector<HostSlots>& placed, int ranks) {
  std::vector<std::string> hosts;
  for (const HostSlots& host : placed)
    for (int slot = 0; slot < host.slots; ++slot) hosts.push_back(host.name);
  hosts.resize(static_cast<std::size_t>(ranks));
  return hosts;
}

std::string to_string(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts)
    if (!host.name.empty())
      text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  return text;
}

}  // namespace meshplan::runtime
