#include "engine/shared_resources.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace meshplan::sim {
namespace {

// Demands are sums of products: what exceeds a capacity by rounding alone does not contend.
constexpr double kDemandRounding = 1e-9;

}  // namespace

int SharedResources::add_resource(double capacity) {
  resources_.push_back({.capacity = capacity});
  return static_cast<int>(resources_.size()) - 1;
}

UsageSpan SharedResources::add_usages(std::span<const Usage> usages) {
  const UsageSpan span{usages_.size(), usages.size()};
  usages_.insert(usages_.end(), usages.begin(), usages.end());
  return span;
}

bool SharedResources::overloaded(const Resource& resource) {
  return resource.demand > resource.capacity * (1 + kDemandRounding);
}

double SharedResources::finish_time(int activity) const {
  const Activity& a = at(activity);
  return a.rate > 0 ? a.since + a.left / a.rate : std::numeric_limits<double>::infinity();
}

void SharedResources::start(int activity, UsageSpan usages, double seconds_left, double now) {
  Activity& started = at(activity);
  require_invariant(!started.active, "an activity starts once");
  started.active = true;
  started.left = seconds_left;
  started.since = now;
  started.rate = 1;
  started.usages = usages;
  ++started.version;
  bool contends = false;
  for (const Usage& usage : usages_of(started)) {
    Resource& used = resource(usage);
    used.demand += usage.demand;
    used.users.push_back(activity);
    contends |= overloaded(used);
  }
  if (!contends) {  // the common case: everything it uses has room
    changed_.push_back(activity);
    return;
  }
  started.rate = 0;
  for (const Usage& usage : usages_of(started))
    if (overloaded(resource(usage))) visit(usage.resource);
}

double SharedResources::stop(int activity, double now) {
  Activity& stopped = at(activity);
  require_invariant(stopped.active, "only what runs can stop");
  stopped.left = std::max(0.0, stopped.left - stopped.rate * (now - stopped.since));
  stopped.active = false;
  ++stopped.version;
  for (const Usage& usage : usages_of(stopped)) {
    Resource& used = resource(usage);
    const bool contended = overloaded(used);
    used.demand -= usage.demand;
    const auto place = std::ranges::find(used.users, activity);
    *place = used.users.back();
    used.users.pop_back();
    if (used.users.empty()) used.demand = 0;  // sheds what rounding left
    if (contended) visit(usage.resource);
  }
  return stopped.left;
}

void SharedResources::set_rate(int activity, double rate, double now) {
  Activity& a = at(activity);
  if (a.rate == rate) return;
  a.left = std::max(0.0, a.left - a.rate * (now - a.since));
  a.since = now;
  a.rate = rate;
  ++a.version;
  changed_.push_back(activity);
}

void SharedResources::visit(int resource) {
  Resource& r = resources_[static_cast<std::size_t>(resource)];
  if (r.visited) return;
  r.visited = true;
  r.fixed_load = 0;
  r.rising_load = 0;
  component_resources_.push_back(resource);
}

/// Everything that shares, directly or not, a resource that binds: users of the visited resources,
/// the overloaded resources that those use, their users, and so on.
void SharedResources::collect_component() {
  for (std::size_t i = 0; i < component_resources_.size(); ++i) {
    const auto index = static_cast<std::size_t>(component_resources_[i]);
    for (const int user : resources_[index].users) {
      if (at(user).visited) continue;
      at(user).visited = true;
      at(user).fixed = false;
      component_.push_back(user);
      for (const Usage& usage : usages_of(at(user)))
        if (overloaded(resource(usage))) visit(usage.resource);
    }
  }
  for (const int user : component_)
    for (const Usage& usage : usages_of(at(user)))
      if (resource(usage).visited) resource(usage).rising_load += usage.demand;
}

/// The lowest common rate at which a resource fills, and which one.
double SharedResources::tightest(std::size_t& where) const {
  double lowest = 1;
  for (const int index : component_resources_) {
    const Resource& r = resources_[static_cast<std::size_t>(index)];
    if (r.rising_load <= 0) continue;
    const double rate = std::max(0.0, r.capacity - r.fixed_load) / r.rising_load;
    if (rate < lowest) {
      lowest = rate;
      where = static_cast<std::size_t>(index);
    }
  }
  return lowest;
}

void SharedResources::fix(int activity, double rate, double now) {
  Activity& a = at(activity);
  if (a.fixed) return;
  a.fixed = true;
  for (const Usage& usage : usages_of(a)) {
    Resource& used = resource(usage);
    if (!used.visited) continue;
    used.rising_load = std::max(0.0, used.rising_load - usage.demand);
    used.fixed_load += usage.demand * rate;
  }
  set_rate(activity, rate, now);
}

void SharedResources::fix_users(Resource& full, double rate, double now) {
  for (const int user : full.users) fix(user, rate, now);
  full.rising_load = 0;  // exactly, whatever rounding left
}

void SharedResources::settle(double now) {
  if (is_settled()) return;
  collect_component();
  std::size_t where = 0;
  while (true) {
    const double rate = tightest(where);
    if (rate >= 1) break;
    fix_users(resources_[where], rate, now);
  }
  for (const int user : component_) fix(user, 1.0, now);
  for (const int index : component_resources_)
    resources_[static_cast<std::size_t>(index)].visited = false;
  for (const int user : component_) at(user).visited = false;
  component_.clear();
  component_resources_.clear();
}

}  // namespace meshplan::sim
