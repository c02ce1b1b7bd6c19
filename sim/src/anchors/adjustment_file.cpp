#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "sim/anchors/adjustment.hpp"

namespace meshplan::sim {

constexpr double kLeastSeconds = 1e-9;
constexpr double kMostTimesOfStep = 10;  // that a term may take: a bound for what nobody measured

struct AnchorTermRecord {
  std::string term;
  double seconds = 0;
  double sigma = 0;
};

struct AnchorRecord {
  std::string run;
  std::string layers;
  std::string source;
  double measured_s = 0;
  double predicted_s = 0;
  double adjusted_s = 0;
  std::vector<AnchorTermRecord> terms;
};

struct AdjustmentFile {
  int schema_version = 1;
  AnchoredTo of;
  std::vector<AnchorRecord> anchors;
  std::vector<Factor> factors;
};

template <class Visitor>
void fields(Visitor& v, AnchorTermRecord& t) {
  v.required("term", t.term, "of the predicted step");
  v.required("seconds", t.seconds, "of it, or the whole step for what scales all of it",
             between(0, limits::kSeconds));
  v.required("sigma", t.sigma, "relative standard deviation of these seconds", between(0, 10));
}

template <class Visitor>
void fields(Visitor& v, AnchorRecord& a) {
  v.required("run", a.run, "its configuration");
  v.required("layers", a.layers, "the part of it that says what a layer does on a device");
  v.required("source", a.source, "where its step time was read");
  v.required("measured_s", a.measured_s, "step time", between(kLeastSeconds, limits::kSeconds));
  v.required("predicted_s", a.predicted_s, "without any anchor",
             between(kLeastSeconds, limits::kSeconds));
  v.required("adjusted_s", a.adjusted_s, "predicted beside all anchors",
             between(kLeastSeconds, limits::kSeconds));
  v.required("terms", a.terms, "what the prediction is made of");
}

template <class Visitor>
void fields(Visitor& v, Factor& f) {
  v.required("term", f.term, "whose seconds it multiplies");
  v.required("shared_by", f.shared_by, "the runs that have it in common");
  v.required("prior_sigma", f.prior_sigma, "deviation of its logarithm without anchors",
             at_least(0));
  v.required("mean", f.mean, "of its logarithm, as the anchors have it", between(-100, 100));
  v.required("sigma", f.sigma, "deviation that they leave", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, AdjustmentFile& f) {
  v.required("schema_version", f.schema_version, "1", between(1, 1));
  v.required("cluster", f.of.cluster, "that the anchors ran on");
  v.required("software", f.of.software, "that ran them, with its release");
  v.required("model", f.of.model, "shape of its layers");
  v.required("precision", f.of.precision, "of its products");
  v.required("anchors", f.anchors, "measured runs that all else follows from");
  v.required("factors", f.factors, "what they say of the terms' errors");
}

namespace {

AnchorRecord record_of(const Anchor& anchor, double adjusted_s) {
  AnchorRecord record{.run = anchor.errors.run,
                      .layers = anchor.errors.layers,
                      .source = anchor.source,
                      .measured_s = anchor.measured_s,
                      .predicted_s = anchor.predicted_s,
                      .adjusted_s = adjusted_s,
                      .terms = {}};
  for (std::size_t t = 0; t < anchor.errors.deviations.size(); ++t)
    if (const double deviation = anchor.errors.deviations[t]; deviation > 0)
      record.terms.push_back({.term = std::string(name_of(static_cast<RunTerm>(t))),
                              .seconds = deviation / anchor.errors.sigmas[t] * anchor.predicted_s,
                              .sigma = anchor.errors.sigmas[t]});
  return record;
}

std::vector<std::string> names_of_terms() {
  std::vector<std::string> names;
  for (int term = 0; term < kNumRunTerms; ++term)
    names.emplace_back(name_of(static_cast<RunTerm>(term)));
  return names;
}

/// @param where  of the record in its file
Anchor anchor_of(const AnchorRecord& record, const std::string& where) {
  static const std::vector<std::string> kNames = names_of_terms();
  Anchor anchor{.errors = {.layers = record.layers, .run = record.run},
                .source = record.source,
                .measured_s = record.measured_s,
                .predicted_s = record.predicted_s};
  for (std::size_t i = 0; i < record.terms.size(); ++i) {
    const AnchorTermRecord& term = record.terms[i];
    const auto found = std::ranges::find(kNames, term.term);
    if (found == kNames.end())
      throw ConfigError(fmt::format("{}.terms[{}].term: {}", where, i,
                                    unknown_name_message("term", term.term, kNames)));
    if (term.seconds > kMostTimesOfStep * record.predicted_s)
      throw ConfigError(
          fmt::format("{}.terms[{}].seconds: {:g}, of a step of {:g} s; expected at "
                      "most {:g} times the step",
                      where, i, term.seconds, record.predicted_s, kMostTimesOfStep));
    const auto place = static_cast<std::size_t>(found - kNames.begin());
    if (anchor.errors.deviations[place] > 0)
      throw ConfigError(fmt::format("{}.terms[{}].term: '{}' is given twice", where, i, term.term));
    anchor.errors.sigmas[place] = term.sigma;
    anchor.errors.deviations[place] = term.seconds / record.predicted_s * term.sigma;
  }
  if (!(anchor.errors.variance() > 0))
    throw ConfigError(fmt::format(
        "{}.terms: none has seconds and a sigma, which say what the run tells; expected at least "
        "one",
        where));
  return anchor;
}

/// What follows from the anchors is there for readers; changed alone it would say nothing.
void require_followed(const std::string& place, double given, double follows) {
  constexpr double kTold = 1e-6;
  if (std::abs(given - follows) > kTold * std::max(1.0, std::abs(follows)))
    throw ConfigError(
        fmt::format("{}: {:.6g}, but the anchors say {:.6g}; write the file anew with meshplan "
                    "adjust",
                    place, given, follows));
}

}  // namespace

Adjustment parse_adjustment(std::string_view text, const std::string& file) {
  const auto parsed = read_json<AdjustmentFile>(text, file);
  if (parsed.anchors.empty())
    throw ConfigError(fmt::format("{}: anchors: is empty; expected at least one", file));
  std::vector<Anchor> anchors;
  for (std::size_t i = 0; i < parsed.anchors.size(); ++i)
    anchors.push_back(anchor_of(parsed.anchors[i], fmt::format("{}: anchors[{}]", file, i)));
  Adjustment adjustment(parsed.of, std::move(anchors));
  for (std::size_t i = 0; i < parsed.anchors.size(); ++i)
    require_followed(fmt::format("{}: anchors[{}].adjusted_s", file, i),
                     parsed.anchors[i].adjusted_s, adjustment.adjusted_s(adjustment.anchors()[i]));
  const std::vector<Factor> factors = adjustment.factors();
  if (parsed.factors.size() != factors.size())
    throw ConfigError(fmt::format(
        "{}: factors: has {}, but {} follow from the anchors; write the file anew with meshplan "
        "adjust",
        file, parsed.factors.size(), factors.size()));
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const std::string where = fmt::format("{}: factors[{}]", file, i);
    if (parsed.factors[i].term != factors[i].term ||
        parsed.factors[i].shared_by != factors[i].shared_by)
      throw ConfigError(fmt::format(
          "{}: '{}' of '{}', but the anchors have '{}' of '{}' there; write the file anew with "
          "meshplan adjust",
          where, parsed.factors[i].term, parsed.factors[i].shared_by, factors[i].term,
          factors[i].shared_by));
    require_followed(where + ".prior_sigma", parsed.factors[i].prior_sigma, factors[i].prior_sigma);
    require_followed(where + ".mean", parsed.factors[i].mean, factors[i].mean);
    require_followed(where + ".sigma", parsed.factors[i].sigma, factors[i].sigma);
  }
  return adjustment;
}

std::string to_json(const Adjustment& adjustment) {
  AdjustmentFile file{.of = adjustment.of(), .anchors = {}, .factors = adjustment.factors()};
  for (const Anchor& anchor : adjustment.anchors())
    file.anchors.push_back(record_of(anchor, adjustment.adjusted_s(anchor)));
  return write_json(file).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace meshplan::sim
