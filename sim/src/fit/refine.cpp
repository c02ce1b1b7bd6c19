#include "sim/fit/refine.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <unordered_map>

#include "core/error.hpp"
#include "fit/upper_median.hpp"
#include "program/calibration/collective_table.hpp"
#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"
#include "sim/engine/engine.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::CollectiveOp;
using program::Program;
using program::Span;
using program::Trace;

/// Ratios of measured to predicted seconds. Seen seldom, a ratio is drawn towards 1.
double correction(const std::vector<double>& ratios) {
  constexpr double kPriorRatios = 2;  // observations that say "as predicted"
  const double n = static_cast<double>(ratios.size());
  return std::pow(upper_median(ratios), n / (n + kPriorRatios));
}

using SpanKey = std::pair<int, std::uint64_t>;  // rank, operation

/// Seconds of each span; the median over the steps of a trace.
std::map<SpanKey, double> durations(const std::vector<Span>& spans) {
  std::map<SpanKey, std::vector<double>> all;
  for (const Span& span : spans) all[{span.rank, span.id}].push_back(span.end_s - span.start_s);
  std::map<SpanKey, double> medians;
  for (auto& [key, seconds] : all) medians[key] = upper_median(std::move(seconds));
  return medians;
}

/// What one trace says of operators and collectives.
struct Evidence {
  std::map<std::string, std::vector<double>> operators;                    // by signature
  std::map<std::pair<std::string, int>, std::vector<double>> collectives;  // by kind, group size
  std::map<std::string, MeasuredOperator> unmeasured;  // as priced, of signatures without an entry
  double predicted_s = 0;
  double measured_s = 0;

  void add(const Evidence& other) {
    for (const auto& [key, ratios] : other.operators)
      operators[key].insert(operators[key].end(), ratios.begin(), ratios.end());
    for (const auto& [key, ratios] : other.collectives)
      collectives[key].insert(collectives[key].end(), ratios.begin(), ratios.end());
    unmeasured.insert(other.unmeasured.begin(), other.unmeasured.end());
  }
};

class Observer {
 public:
  /// @param where  names the trace in messages
  Observer(const Cluster& cluster, const Trace& trace, std::string where)
      : where_(std::move(where)),
        cluster_(with_ranks(cluster, trace.world_size)),
        trace_(trace),
        stages_(program::lower_all(trace.plan)),
        mesh_(program::mesh_of(trace.plan)),
        measured_(durations(trace.spans)) {}

  Evidence run() {
    const SimulationResult played = simulate(stages_, cluster_, {.fold = false});
    predicted_ = durations(played.trace.spans);
    evidence_.predicted_s = played.step_time_s;
    evidence_.measured_s = upper_median(trace_.step_times_s);
    for (int rank = 0; rank < trace_.world_size; ++rank) {
      const Program& program = stages_[static_cast<std::size_t>(mesh_.coordinates(rank).pp)];
      for (const auto& instance : program.instances) observe(rank, program, instance);
    }
    return std::move(evidence_);
  }

 private:
  void observe(int rank, const Program& program, const program::OperationInstance& instance) {
    const program::Operation& operation = program::operation_of(program, instance);
    if (const auto* collective = std::get_if<CollectiveOp>(&operation.work))
      return observe_collective(rank, instance, operation, *collective);
    const std::string signature = program::signature(program, instance);
    if (signature.empty()) return;
    const auto measured = measured_.find({rank, instance.id});
    const auto predicted = predicted_.find({rank, instance.id});
    if (measured == measured_.end() || predicted == predicted_.end()) return;
    if (measured->second <= 0 || predicted->second <= 0) return;
    evidence_.operators[signature].push_back(
        ratio(measured->second, predicted->second, operation.name, rank));
    if (evidence_.unmeasured.contains(signature)) return;
    const Price price = price_operation(program, instance, cluster_);
    if (price.source == PriceSource::Measured) return;
    const program::OperationCost cost = program::operation_cost(program, instance);
    evidence_.unmeasured[signature] = {.signature = signature,
                                       .seconds = price.seconds,
                                       .flops = cost.flops,
                                       .bytes = static_cast<double>(cost.bytes)};
  }

  /// From when the last member arrived: the shortest span of all members. Lanes of gradients and of
  /// the pipeline also wait for compute, so they say nothing.
  void observe_collective(int rank, const program::OperationInstance& instance,
                          const program::Operation& operation, const CollectiveOp& collective) {
    const std::vector<int> members = mesh_.group(collective.group, rank);
    if (operation.lane != program::Lane::Tp || members.size() < 2 || members.front() != rank)
      return;
    const auto shortest = [&](const std::map<SpanKey, double>& spans) {
      double least = 0;
      for (const int member : members) {
        const auto found = spans.find({member, instance.id});
        if (found == spans.end()) return 0.0;
        least = member == rank ? found->second : std::min(least, found->second);
      }
      return least;
    };
    const double measured = shortest(measured_), predicted = shortest(predicted_);
    if (measured <= 0 || predicted <= 0) return;
    const std::string_view kind =
        collective.collective == program::Collective::AllReduce       ? "all_reduce"
        : collective.collective == program::Collective::AllGather     ? "all_gather"
        : collective.collective == program::Collective::ReduceScatter ? "reduce_scatter"
                                                                      : "";
    if (kind.empty()) return;
    evidence_.collectives[{std::string(kind), static_cast<int>(members.size())}].push_back(
        ratio(measured, predicted, operation.name, rank));
  }

  /// What no noise explains would spoil the table for every plan.
  double ratio(double measured, double predicted, const std::string& name, int rank) const {
    constexpr double kMost = 1e6;
    const double ratio = measured / predicted;
    if (!(ratio >= 1 / kMost && ratio <= kMost))
      throw ConfigError(fmt::format(
          "{}: {} of rank {} took {:g} s, but {:g} s are predicted; expected at most {:g} times "
          "more or less",
          where_, name, rank, measured, predicted, kMost));
    return ratio;
  }

  std::string where_;
  Cluster cluster_;
  const Trace& trace_;
  std::vector<Program> stages_;
  program::Mesh mesh_;
  std::map<SpanKey, double> measured_, predicted_;
  Evidence evidence_;
};

Cluster corrected(const Cluster& cluster, const Evidence& evidence) {
  Cluster result = cluster;
  for (const auto& [signature, ratios] : evidence.operators) {
    const double factor = correction(ratios);
    const auto entry = std::ranges::find(result.operators, signature, &MeasuredOperator::signature);
    if (entry != result.operators.end()) {
      entry->seconds *= factor;
      entry->seconds_busy *= factor;
    } else if (const auto priced = evidence.unmeasured.find(signature);
               priced != evidence.unmeasured.end()) {
      result.operators.push_back(priced->second);
      result.operators.back().seconds *= factor;
    }
  }
  for (const auto& [key, ratios] : evidence.collectives)
    for (MeasuredCollective& entry : result.collectives)
      if (entry.op == key.first && entry.group_size == key.second && !entry.cold)
        entry.seconds *= correction(ratios);
  return result;
}

/// A file that is written must be one that can be read.
Cluster readable(const Cluster& cluster) {
  return parse_cluster(to_json(cluster), "the refined cluster");
}

double relative_error(double predicted, double measured) {
  return std::abs(predicted / measured - 1);
}

void check(const std::vector<Trace>& traces) {
  if (traces.empty()) throw ConfigError("refine: no trace; measured ones are expected");
  for (std::size_t i = 0; i < traces.size(); ++i)
    if (!traces[i].measured || traces[i].spans.empty() || traces[i].step_times_s.empty())
      throw ConfigError(fmt::format(
          "refine: trace {} ({}): {}; what `meshplan run --trace` writes is expected", i + 1,
          traces[i].source, !traces[i].measured ? "not measured" : "without spans or step times"));
  for (std::size_t i = 0; i < traces.size(); ++i)
    for (const double seconds : traces[i].step_times_s)
      if (!(seconds > 0))
        throw ConfigError(fmt::format("refine: trace {} ({}): step_times_s: {}: a step takes time",
                                      i + 1, traces[i].source, seconds));
}

}  // namespace

Refinement refine(const Cluster& cluster, const std::vector<Trace>& traces) {
  check(traces);
  std::vector<Evidence> evidence;
  for (std::size_t i = 0; i < traces.size(); ++i)
    evidence.push_back(
        Observer(cluster, traces[i], fmt::format("refine: trace {} ({})", i + 1, traces[i].source))
            .run());
  const auto all_but = [&](std::size_t left_out) {
    Evidence sum;
    for (std::size_t i = 0; i < evidence.size(); ++i)
      if (i != left_out) sum.add(evidence[i]);
    return sum;
  };
  const Evidence all = all_but(traces.size());
  Refinement refinement{.cluster = readable(corrected(cluster, all)),
                        .operators = static_cast<int>(all.operators.size()),
                        .collectives = static_cast<int>(all.collectives.size()),
                        .held_out_before = {},
                        .held_out_after = {}};
  if (traces.size() < 2) return refinement;
  double before = 0, after = 0;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const Cluster others = with_ranks(corrected(cluster, all_but(i)), traces[i].world_size);
    const double predicted = simulate(program::lower_all(traces[i].plan), others,
                                      {.fold = false, .break_down = false, .record_spans = false})
                                 .step_time_s;
    before += relative_error(evidence[i].predicted_s, evidence[i].measured_s);
    after += relative_error(predicted, evidence[i].measured_s);
  }
  const auto count = static_cast<double>(traces.size());
  refinement.held_out_before = before / count;
  refinement.held_out_after = after / count;
  return refinement;
}

}  // namespace meshplan::sim
