#include "ranks/run_sizes.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "output/progress.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/gzip.hpp"
#include "process/temporary_folder.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/trace/program_json.hpp"
#include "program/trace/trace_blocks.hpp"
#include "ranks/ranks.hpp"
#include "ranks/timed_run.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/os/host_info.hpp"
#include "runtime/train/preflight.hpp"

namespace meshplan::cli {
namespace {

int cores_here() {
  return static_cast<int>(runtime::detect_host().cores.size());
}

void require_processors(const sim::Cluster& cluster) {
  if (cluster.device.kind != sim::DeviceKind::Cpu || cluster.num_nodes != 1)
    throw ConfigError(fmt::format(
        "--run: '{}' has {}, expected one machine whose ranks run on its processors: "
        "--cluster here.json, which `meshplan calibrate --out here.json` writes",
        cluster.name,
        cluster.device.kind == sim::DeviceKind::Cpu ? fmt::format("{} nodes", cluster.num_nodes)
                                                    : cluster.device.name));
}

std::vector<const planner::ScalingPoint*> that_run(const planner::ScalingCurve& curve, int cores) {
  std::vector<const planner::ScalingPoint*> points;
  for (const planner::ScalingPoint& point : curve.points)
    if (point.fits() && point.devices <= kRanksPerCore * cores) points.push_back(&point);
  if (points.empty())
    throw ConfigError(fmt::format(
        "--run: no size has a plan that fits and at most {} ranks ({} a core); use --from and --to",
        kRanksPerCore * cores, kRanksPerCore));
  return points;
}

/// The plan as `run` reads it: with its cluster.
std::string plan_text(const planner::ScalingPoint& point, const sim::Cluster& cluster) {
  program::Plan plan = point.figures->plan;
  const sim::Cluster own = sim::with_ranks(cluster, point.devices);
  plan.cluster_name = own.name;
  plan.cluster_json = sim::to_json(own);
  plan.cluster_hash.clear();
  return program::to_json(plan);
}

}  // namespace

std::string source_of_sizes() {
  const int cores = cores_here();
  return fmt::format("run here on {} core{}, which more ranks share", cores, cores == 1 ? "" : "s");
}

std::vector<planner::MeasuredSize> run_sizes(const RunSizes& how,
                                             const planner::ScalingCurve& curve,
                                             const sim::Cluster& cluster,
                                             const Terminal& terminal) {
  require_processors(cluster);
  const std::vector<const planner::ScalingPoint*> points = that_run(curve, cores_here());
  for (const planner::ScalingPoint* point : points) {
    runtime::require_slots(parse_hosts(how.hosts), point->devices);
    runtime::check_data(point->figures->plan, how.data, false);
  }
  TemporaryFolder folder;
  const std::string plan_file = folder.file("plan.json"), trace_file = folder.file("trace.json");
  Progress progress("running sizes in turns", terminal);
  std::vector<planner::MeasuredSize> runs;
  std::size_t done = 0;
  for (int round = 0; round < how.rounds; ++round)
    for (const planner::ScalingPoint* point : points) {
      write_file(plan_file, plan_text(*point, cluster));
      const int code = run_timed(
          {.plan_file = plan_file, .data = how.data, .steps = how.steps, .trace_file = trace_file},
          point->figures->plan, how.hosts);
      if (code != kDone)
        throw IoError(
            fmt::format("the run on {} ranks ended with exit code {}", point->devices, code));
      const program::Trace trace = program::parse_trace(unpacked_blocks(trace_file), trace_file);
      for (const double seconds : counted_step_times(trace))
        runs.push_back({.devices = point->devices, .step_time_s = seconds});
      progress.update(++done, points.size() * static_cast<std::size_t>(how.rounds));
    }
  return runs;
}

}  // namespace meshplan::cli
