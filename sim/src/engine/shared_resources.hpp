#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace meshplan::sim {

/// What an activity takes of a resource per second while it runs at full speed.
struct Usage {
  int resource = 0;
  double demand = 0;
};

/// A run of usages in the pool of SharedResources.
struct UsageSpan {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// Activities in progress and the resources that they share. An activity's rate is the part of its
/// full speed that it gets, between 0 and 1. Rates are max-min fair (Bertsekas and Gallager, "Data
/// Networks", section 6.5.2): all rise together until a resource is full; its users stay there, the
/// others go on rising. A resource whose users ask for no more than it has costs nothing to keep.
class SharedResources {
 public:
  int add_resource(double capacity);
  UsageSpan add_usages(std::span<const Usage> usages);
  void resize_activities(std::size_t count) { activities_.resize(count); }
  double capacity(int resource) const {
    return resources_[static_cast<std::size_t>(resource)].capacity;
  }
  std::span<const Usage> usages_of(UsageSpan span) const {
    return std::span(usages_).subspan(span.begin, span.count);
  }

  /// `seconds_left` at full speed. What starts on a full resource stands still until settle().
  void start(int activity, UsageSpan usages, double seconds_left, double now);
  /// Ends or pauses an activity. @returns seconds left at full speed
  double stop(int activity, double now);

  /// Shares resources anew among all that started and stopped at `now`: once for all of them, so
  /// that a rank that goes from one operation to the next like it disturbs nobody.
  void settle(double now);
  bool is_settled() const { return component_resources_.empty(); }

  bool is_active(int activity) const { return at(activity).active; }
  double finish_time(int activity) const;
  double rate(int activity) const { return at(activity).rate; }
  /// Grows with every change of the activity's finish time.
  std::uint32_t version(int activity) const { return at(activity).version; }
  /// Activities whose finish time has changed since the last clear_changed().
  const std::vector<int>& changed() const { return changed_; }
  void clear_changed() { changed_.clear(); }

 private:
  struct Activity {
    double left = 0;  // seconds at full speed, when `since`
    double since = 0;
    double rate = 0;
    UsageSpan usages = {};
    std::uint32_t version = 0;
    bool active = false;
    bool visited = false;  // by the solver: in the component
    bool fixed = false;    // by the solver: its rate is final
  };
  struct Resource {
    double capacity = 0;
    double demand = 0;  // of all users at full speed
    std::vector<int> users = {};
    bool visited = false;
    double fixed_load = 0;   // solver: of users whose rate is final
    double rising_load = 0;  // solver: of the others, at full speed
  };

  const Activity& at(int activity) const { return activities_[static_cast<std::size_t>(activity)]; }
  Activity& at(int activity) { return activities_[static_cast<std::size_t>(activity)]; }
  Resource& resource(const Usage& usage) {
    return resources_[static_cast<std::size_t>(usage.resource)];
  }
  std::span<const Usage> usages_of(const Activity& activity) const {
    return usages_of(activity.usages);
  }
  static bool overloaded(const Resource& resource);

  void set_rate(int activity, double rate, double now);
  void collect_component();
  void visit(int resource);
  double tightest(std::size_t& where) const;
  void fix_users(Resource& full, double rate, double now);
  void fix(int activity, double rate, double now);

  std::vector<Activity> activities_;
  std::vector<Resource> resources_;
  std::vector<Usage> usages_;
  std::vector<int> changed_;
  std::vector<int> component_;            // activities to solve for
  std::vector<int> component_resources_;  // resources that may bind
};

}  // namespace meshplan::sim
