#pragma once

#include <functional>
#include <optional>

#include "program/calibration/collective_table.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {

/// Under which name a collective is measured.
program::CommOp comm_op(program::Collective collective);

struct MeasuredSeconds {
  double seconds = 0;
  bool exact = false;  // a sample of this very size and group
  MeasuredSizes sizes;
};

/// Looks a communication up in the cluster's samples of the same operation, on buffers as cold as
/// the group's where such were measured, from runs with as many ranks on the host as now (nearest),
/// between message sizes linearly in log(bytes), log(seconds).
/// Beyond the samples, and for group sizes that were not measured (nearest), the nearest sample is
/// scaled by what `formula(group_size, bytes)` says of the ratio.
/// @returns nothing if the operation was not measured
std::optional<MeasuredSeconds> measured_seconds(const Cluster& cluster, program::CommOp op,
                                                const GroupPlacement& group, double bytes,
                                                const std::function<double(int, double)>& formula);

/// Sizes of all communications that were measured inside a host: the fabric's formula was fitted to
/// these.
MeasuredSizes measured_messages(const Cluster& cluster, double bytes);

}  // namespace meshplan::sim
