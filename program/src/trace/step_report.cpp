#include "program/trace/step_report.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "core/limits.hpp"

namespace meshplan::program {

template <class Visitor>
void fields(Visitor& v, OverRanks& o) {
  v.required("min", o.min, "least of any rank");
  v.required("mean", o.mean, "mean over ranks");
  v.required("max", o.max, "most of any rank");
  v.required("max_rank", o.max_rank, "world rank that has the most", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, CommunicationTime& c) {
  v.required("exposed_s", c.exposed_s, "seconds in which the rank computed nothing meanwhile");
  v.required("hidden_s", c.hidden_s, "seconds in which the rank computed meanwhile");
}

template <class Visitor>
void fields(Visitor& v, BucketTime& b) {
  v.required("stage", b.stage, "pipeline stage that holds the bucket", at_least(0));
  v.required("bucket", b.bucket, "in the order of their reductions", at_least(0));
  v.required("bytes", b.bytes, "of one rank's gradients", at_least(0));
  v.required("seconds", b.seconds, "from issue to end, over the ranks of the stage");
}

template <class Visitor>
void fields(Visitor& v, StepTiming& t) {
  v.required("phases_s", t.phases_s, "seconds of a rank by phase; they sum to the step");
  v.required("communication", t.communication, "by axis of the mesh");
  v.required("buckets", t.buckets, "reductions of gradients");
  v.required("busy_share", t.busy_share, "of the step that a rank's device computed");
  v.required("rank_balance", t.rank_balance, "mean / max over ranks of the time computing");
  v.required("stage_balance", t.stage_balance, "the same over the means of the stages");
}

template <class Visitor>
void fields(Visitor& v, RanksImbalance& r) {
  v.required("ranks", r.ranks, "that share the experts", between(2, limits::kWidth));
  v.required("imbalance", r.imbalance, "rows of the busiest of them / mean", at_least(1));
}

template <class Visitor>
void fields(Visitor& v, LayerLoad& l) {
  v.required("layer", l.layer, "of the model", at_least(0));
  v.required("min", l.min, "tokens of the expert with the fewest");
  v.required("mean", l.mean, "over the layer's experts");
  v.required("max", l.max, "tokens of the expert with the most");
  v.required("max_expert", l.max_expert, "expert that has the most", at_least(0));
  v.required("ep_imbalance", l.ep_imbalance, "rows of the busiest ep rank's experts / mean");
  v.required("dropped_share", l.dropped_share, "of the choices, beyond an expert's capacity");
  v.optional("imbalance_over", l.over, "what it would be over other numbers of ep ranks");
}

template <class Visitor>
void fields(Visitor& v, RowsBeyondPlan& r) {
  v.required("layer_visits", r.layer_visits,
             "work of a layer on a micro-batch with more rows than buffers, on all ranks");
  v.required("bytes", r.bytes, "of the room made for them at most, on the rank with most");
  v.required("largest_imbalance", r.largest_imbalance,
             "rows of the worst of them / those of a balanced router; 0 without any");
}

template <class Visitor>
void fields(Visitor& v, ExpertReport& e) {
  v.required("balance_loss", e.balance_loss, "load balancing loss, sum over the layers");
  v.required("z_loss", e.z_loss, "sum over the layers");
  v.required("layers", e.layers, "of each layer with experts");
  v.optional("beyond_plan", e.beyond_plan, "rows beyond the plan's buffers, and their room");
}

template <class Visitor>
void fields(Visitor& v, SlowRank& r) {
  v.required("rank", r.rank, "of the job", at_least(0));
  v.required("times", r.times, "as long as the median of the ranks that do the same work");
}

template <class Visitor>
void fields(Visitor& v, StepReport& r) {
  v.required("step", r.step, "1 = the first of the run", at_least(1));
  v.required("loss", r.loss, "mean over the tokens of the global batch");
  v.required("gradient_norm", r.gradient_norm,
             "before clipping; null if it was not finite, so that the step updated nothing");
  v.required("learning_rate", r.learning_rate, "of this step");
  v.required("step_time_s", r.seconds, "of the slowest rank");
  v.required("tokens_per_s", r.tokens_per_s, "over all ranks");
  v.required("samples_per_s", r.samples_per_s, "sequences, over all ranks");
  v.required("mfu", r.mfu, "model FLOP utilization; null where no peak is known");
  v.required("resident_bytes", r.resident_bytes, "of the process that holds most");
  v.required("evaluation_loss", r.evaluation_loss, "on held-out text; null if not evaluated");
  v.stated("prediction_loss", r.prediction_loss,
           "mean of the losses of the prediction modules, which `loss` leaves out");
  v.required("loss_scale", r.loss_scale, "fp16: of this step; null in other precisions");
  v.required("timing", r.timing, "where the time went; null for a step that was not timed");
  v.required("experts", r.experts, "what the routers did; null without experts");
  v.stated("indexer_loss", r.indexer_loss, "of sparse attention, sum over the layers");
  v.stated("slow_rank", r.slow_rank,
           "that is slow beside its peers; of several the newest, then the worst");
  v.required("warnings", r.warnings, "what looked wrong");
}

namespace {

constexpr const char* kKind = "step";

bool is_step(const Json& root) {
  const auto kind = root.is_object() ? root.find("kind") : root.end();
  return kind != root.end() && *kind == kKind;
}

/// Times are looked up by these names.
void check_phases(const StepReport& report, const std::string& file) {
  if (!report.timing) return;
  for (const auto& [phase, seconds] : report.timing->phases_s)
    if (std::ranges::find(phase_names(), phase) == phase_names().end())
      throw ConfigError(fmt::format("{}: timing.phases_s: {}", file,
                                    unknown_name_message("phase", phase, phase_names())));
}

/// To the microsecond in a second: clocks and other processes tell no more, and digits are most of
/// a log.
void round_numbers(Json& json) {
  if (json.is_structured())
    for (Json& part : json) round_numbers(part);
  else if (json.is_number_float())
    json = Json::parse(fmt::format("{:.6g}", json.get<double>())).get<double>();
}

void add(OverRanks& sum, const OverRanks& one) {
  sum.min += one.min;
  sum.mean += one.mean;
  sum.max += one.max;
  sum.max_rank = one.max_rank;
}

void divide(OverRanks& sum, double by) {
  sum.min /= by;
  sum.mean /= by;
  sum.max /= by;
}

/// Calls use(sum, other) on every figure of two timings.
template <class Timing, class Use>
void for_each_figure(StepTiming& sum, Timing& other, Use use) {
  for (auto& [name, figure] : other.phases_s) use(sum.phases_s[name], figure);
  for (auto& [axis, figure] : other.communication) {
    use(sum.communication[axis].exposed_s, figure.exposed_s);
    use(sum.communication[axis].hidden_s, figure.hidden_s);
  }
  for (std::size_t i = 0; i < sum.buckets.size(); ++i)
    use(sum.buckets[i].seconds, other.buckets[i].seconds);
  use(sum.busy_share, other.busy_share);
}

}  // namespace

const std::vector<std::string>& phase_names() {
  static const std::vector<std::string> kNames = {"forward",       "recompute", "input_grad",
                                                  "weight_grad",   "optimizer", "host",
                                                  "communication", "idle"};
  return kNames;
}

std::string to_json(const StepTiming& timing) {
  return write_json(timing).dump();
}

std::string to_json(const ExpertReport& experts) {
  return write_json(experts).dump();
}

std::string to_json_line(const StepReport& report) {
  Json line{{"kind", kKind}};
  line.update(write_json(report));
  round_numbers(line["timing"]);
  return line.dump();
}

StepReport parse_step_report(std::string_view line, const std::string& file) {
  Json root = parse_json(line, file);
  if (!is_step(root)) throw ConfigError(file + ": kind: expected a line of kind \"step\"");
  root.erase("kind");
  StepReport report = read_json<StepReport>(root.dump(), file);
  check_phases(report, file);
  return report;
}

ExpertImbalance imbalance_of_log(std::string_view log, const std::string& file) {
  MeanExperts sum;
  std::optional<std::size_t> layers;
  for (int number = 1; !log.empty(); ++number) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(log.size(), line.size() + 1));
    if (line.empty()) continue;
    const std::string where = fmt::format("{}: line {}", file, number);
    const Json root = parse_json(line, where);
    if (!is_step(root)) continue;
    const auto experts = parse_step_report(line, where).experts;
    if (!experts) continue;
    if (layers.value_or(experts->layers.size()) != experts->layers.size())
      throw ConfigError(fmt::format("{}: experts.layers: {} layers, but {} in the steps before",
                                    where, experts->layers.size(), *layers));
    layers = experts->layers.size();
    sum.add(*experts);
  }
  const std::optional<ExpertReport> mean = sum.mean();
  if (!mean)
    throw ConfigError(file +
                      ": no step of this log has experts; expected a file that `meshplan run "
                      "--log` wrote of a model with experts");
  return mean_imbalance(*mean);
}

std::string step_report_schema() {
  return json_schema<StepReport>().dump(2) + "\n";
}

void MeanTiming::add(const StepTiming& timing) {
  if (steps_ == 0) {
    sum_.buckets = timing.buckets;
    for (BucketTime& bucket : sum_.buckets) bucket.seconds = {};
    sum_.rank_balance = sum_.stage_balance = 0;
  }
  ++steps_;
  for_each_figure(sum_, timing,
                  [](OverRanks& sum, const OverRanks& one) { program::add(sum, one); });
  sum_.rank_balance += timing.rank_balance;
  sum_.stage_balance += timing.stage_balance;
}

std::optional<StepTiming> MeanTiming::mean() const {
  if (steps_ == 0) return std::nullopt;
  StepTiming mean = sum_;
  for_each_figure(mean, mean, [&](OverRanks& sum, OverRanks& /*same*/) { divide(sum, steps_); });
  mean.rank_balance /= steps_;
  mean.stage_balance /= steps_;
  return mean;
}

}  // namespace meshplan::program
