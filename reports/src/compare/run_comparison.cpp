#include "program/plan/mesh.hpp"
#include "reports/comparison.hpp"

namespace meshplan::reports {
namespace {

/// The ranks of a trace that are in the stage of `rank`.
program::Trace of_stage(program::Trace trace, int rank) {
  const program::Mesh mesh = program::mesh_of(trace.plan);
  const int stage = mesh.coordinates(rank).pp;
  std::erase_if(trace.spans,
                [&](const program::Span& span) { return mesh.coordinates(span.rank).pp != stage; });
  return trace;
}

Comparison with_kernels(Comparison comparison, const planner::MeasuredRun& measured) {
  if (measured.match.kernels > 0) comparison.kernels = measured.match;
  return comparison;
}

}  // namespace

Comparison compare(const program::Trace& predicted, const planner::MeasuredRun& measured) {
  if (measured.match.kernels == 0 || measured.trace.spans.empty())
    return compare(predicted, measured.trace);
  return with_kernels(
      compare(of_stage(predicted, measured.trace.spans.front().rank), measured.trace), measured);
}

Comparison compare(const planner::TimedPlan& predicted, const planner::MeasuredRun& measured) {
  return with_kernels(compare(predicted, measured.trace), measured);
}

}  // namespace meshplan::reports
