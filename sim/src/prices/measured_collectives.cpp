#include "prices/measured_collectives.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "core/error.hpp"

namespace meshplan::sim {
namespace {

double log_distance(double a, double b) {
  return std::abs(std::log2(a / b));
}

/// The samples of the best-matching run: nearest group size, then nearest number of ranks on the
/// host, then buffers as cold as the group's; ascending in bytes.
std::vector<const MeasuredCollective*> nearest_run(const Cluster& cluster, program::CommOp op,
                                                   const GroupPlacement& group) {
  const auto name = program::name_of(op);
  const auto mismatch = [&](const MeasuredCollective& sample) {
    return std::tuple(log_distance(sample.group_size, group.size),
                      log_distance(sample.ranks_on_host, cluster.devices_per_node),
                      sample.cold != group.cold);
  };
  const MeasuredCollective* best = nullptr;
  for (const auto& sample : cluster.collectives)
    if (sample.op == name && (best == nullptr || mismatch(sample) < mismatch(*best)))
      best = &sample;
  std::vector<const MeasuredCollective*> run;
  if (best == nullptr) return run;
  for (const auto& sample : cluster.collectives)
    if (sample.op == name && sample.group_size == best->group_size &&
        sample.ranks_on_host == best->ranks_on_host && sample.cold == best->cold &&
        sample.seconds > 0)
      run.push_back(&sample);
  std::ranges::sort(run, {}, [](const auto* sample) { return sample->bytes; });
  return run;
}

double interpolate(const MeasuredCollective& a, const MeasuredCollective& b, double bytes) {
  const double low = std::log(static_cast<double>(std::max<std::int64_t>(1, a.bytes)));
  const double high = std::log(static_cast<double>(b.bytes));
  const double part = (std::log(std::max(1.0, bytes)) - low) / (high - low);
  return std::exp((1 - part) * std::log(a.seconds) + part * std::log(b.seconds));
}

}  // namespace

program::CommOp comm_op(program::Collective collective) {
  switch (collective) {
    case program::Collective::AllReduce:
      return program::CommOp::AllReduce;
    case program::Collective::ReduceScatter:
      return program::CommOp::ReduceScatter;
    case program::Collective::AllGather:
      return program::CommOp::AllGather;
    case program::Collective::AllToAll:
    case program::Collective::AllToAllV:
      return program::CommOp::AllToAll;
    case program::Collective::Broadcast:
      return program::CommOp::Broadcast;
    case program::Collective::Shift:
      return program::CommOp::PointToPoint;
  }
  throw InvariantError("unknown collective");
}

std::optional<MeasuredSeconds> measured_seconds(const Cluster& cluster, program::CommOp op,
                                                const GroupPlacement& group, double bytes,
                                                const std::function<double(int, double)>& formula) {
  const auto run = nearest_run(cluster, op, group);
  if (run.empty()) return std::nullopt;
  const int measured_size = run.front()->group_size;
  const auto size_of = [](const MeasuredCollective* sample) {
    return static_cast<double>(sample->bytes);
  };
  const auto above = std::ranges::lower_bound(run, bytes, {}, size_of);
  MeasuredSeconds found;
  if (above != run.end() && size_of(*above) == bytes) {
    found = {(*above)->seconds, measured_size == group.size};
  } else if (above != run.begin() && above != run.end()) {
    found.seconds = interpolate(**std::prev(above), **above, bytes);
  } else {
    const MeasuredCollective& end = above == run.end() ? *run.back() : *run.front();
    found.seconds = end.seconds * formula(measured_size, bytes) /
                    formula(measured_size, static_cast<double>(end.bytes));
  }
  if (measured_size != group.size)
    found.seconds *= formula(group.size, bytes) / formula(measured_size, bytes);
  found.sizes = {.least = size_of(run.front()), .most = size_of(run.back()), .asked = bytes};
  return found;
}

MeasuredSizes measured_messages(const Cluster& cluster, double bytes) {
  MeasuredSizes sizes;
  for (const MeasuredCollective& sample : cluster.collectives) {
    if (sample.seconds <= 0 || sample.bytes <= 0) continue;  // a barrier has no size
    const auto size = static_cast<double>(sample.bytes);
    sizes.least = sizes.most == 0 ? size : std::min(sizes.least, size);
    sizes.most = std::max(sizes.most, size);
  }
  sizes.asked = sizes.most > 0 ? bytes : 0;
  return sizes;
}

}  // namespace meshplan::sim
