#include "anchors/corrected_parts.hpp"

#include "sim/stacks/run_terms.hpp"

namespace meshplan::sim {
namespace {

/// What parts of a part have in common with it.
void follow(RunBreakdown& after, const RunBreakdown& before, double RunBreakdown::*whole,
            std::initializer_list<double RunBreakdown::*> parts) {
  if (before.*whole <= 0) return;
  for (double RunBreakdown::*part : parts) after.*part *= after.*whole / before.*whole;
}

}  // namespace

RunBreakdown corrected(const RunBreakdown& before, const std::vector<double>& factors,
                       double step_time_s) {
  const auto factor = [&](RunTerm term) { return factors[static_cast<std::size_t>(term)]; };
  const double streams = before.compute - before.products - before.attention - before.starts;
  RunBreakdown s = before;
  s.products *= factor(RunTerm::Products);
  s.attention *= factor(RunTerm::Attention);
  s.starts *= factor(RunTerm::Starts);
  s.compute = s.products + s.attention + s.starts + streams * factor(RunTerm::Streams);
  s.experts *= factor(RunTerm::Experts);
  s.context *= factor(RunTerm::Exchange);
  s.tensor = (before.tensor - before.experts) * factor(RunTerm::Exchange) + s.experts;
  s.pipeline *= factor(RunTerm::Pipeline);
  s.data_parallel *= factor(RunTerm::DataParallel);
  s.optimizer *= factor(RunTerm::Optimizer);
  s.offload *= factor(RunTerm::HostMemory);
  s.overhead *= factor(RunTerm::Overhead);
  const double total = s.compute + s.tensor + s.host + s.pipeline + s.data_parallel + s.optimizer +
                       s.offload + s.overhead;
  if (total <= 0) return before;
  for (double RunBreakdown::*part :
       {&RunBreakdown::compute, &RunBreakdown::products, &RunBreakdown::attention,
        &RunBreakdown::starts, &RunBreakdown::tensor, &RunBreakdown::context,
        &RunBreakdown::experts, &RunBreakdown::host, &RunBreakdown::pipeline,
        &RunBreakdown::data_parallel, &RunBreakdown::optimizer, &RunBreakdown::offload,
        &RunBreakdown::overhead})
    s.*part *= step_time_s / total;
  follow(s, before, &RunBreakdown::compute, {&RunBreakdown::forward, &RunBreakdown::recompute});
  follow(s, before, &RunBreakdown::products, {&RunBreakdown::recomputed_products});
  follow(s, before, &RunBreakdown::attention, {&RunBreakdown::recomputed_attention});
  return s;
}

}  // namespace meshplan::sim
