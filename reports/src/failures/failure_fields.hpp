// What failures cost, as JSON: one declaration for what is written and for its schema. Seconds and
// bytes throughout; parts and goodputs are fractions.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fields.hpp"
#include "planner/failures/failure_names.hpp"
#include "planner/failures/failure_study.hpp"

namespace meshplan {

namespace planner {

template <class Visitor>
void fields(Visitor& v, TimeParts& p) {
  v.required("useful", p.useful, "training that no failure undid: the goodput", between(0, 1));
  v.required("lost", p.lost, "training that had to be done again", between(0, 1));
  v.required("saving", p.saving, "checkpoints that stop training", between(0, 1));
  v.required("restart", p.restart, "detection, start and loading", between(0, 1));
  v.required("smaller", p.smaller, "what fewer nodes do not do, and waiting", between(0, 1));
}

template <class Visitor>
void fields(Visitor& v, FailurePlay& p) {
  v.required("parts", p.parts, "of a trial's time, means; they sum to 1");
  v.required("goodput_low", p.low, "5 % of the trials are below", between(0, 1));
  v.required("goodput_high", p.high, "5 % of the trials are above", between(0, 1));
  v.required("standard_error", p.standard_error, "of the mean goodput", at_least(0));
  v.required("failures", p.failures, "mean, of a trial", at_least(0));
  v.required("paid_goodput", p.paid_goodput, "useful time over device time, with spare nodes'",
             between(0, 1));
}

}  // namespace planner

namespace reports {

struct CheckpointJson {
  double bytes = 0, rank_bytes = 0, host_node_bytes = 0;
  std::optional<double> host_node_limit;
  double stall_s = 0, lag_s = 0, load_s = 0;
};

struct GoodputJson {
  double goodput = 0, effective_step_s = 0, failures_per_day = 0, mtbf_s = 0;
  double checkpoint_interval_s = 0, failure_s = 0, saving = 0, smaller_world = 0, paid = 1;
  CheckpointJson checkpoint;
};

template <class Visitor>
void fields(Visitor& v, CheckpointJson& c) {
  v.required("bytes", c.bytes, "of the whole", at_least(0));
  v.required("rank_bytes", c.rank_bytes, "of the rank that saves most", at_least(0));
  v.required("host_node_bytes", c.host_node_bytes, "host memory of a node that copies take",
             at_least(0));
  v.required("host_node_limit", c.host_node_limit, "that a node has for them; null if not known");
  v.required("stall_s", c.stall_s, "that training stops for", at_least(0));
  v.required("lag_s", c.lag_s, "from there until the job could restart from it", at_least(0));
  v.required("load_s", c.load_s, "until all ranks have loaded it", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, GoodputJson& g) {
  v.required("goodput", g.goodput, "time of training over all time (Daly 2006)", between(0, 1));
  v.required("effective_step_s", g.effective_step_s, "step time over goodput", at_least(0));
  v.required("failures_per_day", g.failures_per_day, "expected, of the job", at_least(0));
  v.required("mtbf_s", g.mtbf_s, "mean time between failures of the job", at_least(0));
  v.required("checkpoint_interval_s", g.checkpoint_interval_s, "of training", at_least(0));
  v.required("failure_s", g.failure_s, "that a failure costs: restart and lost work", at_least(0));
  v.required("saving", g.saving, "part of the time in which checkpoints stop training",
             between(0, 1));
  v.required("smaller_world", g.smaller_world, "part of the work that fewer nodes do not do",
             between(0, 1));
  v.required("paid", g.paid, "devices with those of spare nodes, over those of the job",
             at_least(1));
  v.required("checkpoint", g.checkpoint, "that this rests on");
}

inline CheckpointJson checkpoint_json(const planner::CheckpointCosts& costs) {
  CheckpointJson json{.bytes = costs.bytes,
                      .rank_bytes = costs.rank_bytes,
                      .host_node_bytes = costs.host_node_bytes,
                      .host_node_limit = {},
                      .stall_s = costs.stall_s,
                      .lag_s = costs.lag_s,
                      .load_s = costs.load_s};
  if (std::isfinite(costs.host_node_limit)) json.host_node_limit = costs.host_node_limit;
  return json;
}

inline GoodputJson goodput_json(const planner::Goodput& goodput, double step_time_s) {
  return {.goodput = goodput.goodput,
          .effective_step_s = goodput.effective_s(step_time_s),
          .failures_per_day = goodput.failures_per_day,
          .mtbf_s = goodput.mtbf_s,
          .checkpoint_interval_s = goodput.interval_s,
          .failure_s = goodput.failure_s,
          .saving = goodput.saving,
          .smaller_world = goodput.smaller_world,
          .paid = goodput.paid,
          .checkpoint = checkpoint_json(goodput.checkpoint)};
}

}  // namespace reports

}  // namespace meshplan
