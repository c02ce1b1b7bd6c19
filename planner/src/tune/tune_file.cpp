#include "planner/tune/tune_file.hpp"

#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "program/plan_file/plan_file.hpp"

namespace meshplan {

namespace planner {

/// The file's form of a candidate: its plan is a plan file of its own.
struct TuneCandidateFile {
  RawJson plan;
  TuneCandidate candidate;  // the rest
};

struct TuneFileForm {
  TuneFile file;
  std::vector<TuneCandidateFile> candidates;
};

template <class Visitor>
void fields(Visitor& v, TuneRound& r) {
  v.required("turn", r.turn, "runs of one turn follow each other", at_least(0));
  v.required("step_times_s", r.step_times_s, "seconds of each step, without warm-up",
             between(1e-9, limits::kSeconds));
  program::MachineSpeed machine = r.machine.value_or(program::MachineSpeed{});
  bool known = r.machine.has_value();
  v.optional("machine_known", known, "was the machine's speed measured, too?");
  v.optional("reference_s", machine.reference_s, "of the reference product, mean",
             between(0, limits::kSeconds));
  v.optional("reference_ranks", machine.reference_ranks, "that ran it at once",
             between(1, limits::kRanks));
  v.optional("other_cores", machine.other_cores, "that other processes kept busy",
             between(0, limits::kRanks));
  v.optional("cores", machine.cores, "that the ranks may run on", between(0, limits::kRanks));
  v.optional("ranks_on_host", machine.ranks_on_host, "of the job, on the fullest machine",
             between(1, limits::kRanks));
  r.machine = known ? std::optional(machine) : std::nullopt;
}

template <class Visitor>
void fields(Visitor& v, TuneCandidateFile& f) {
  TuneCandidate& c = f.candidate;
  v.required("plan", f.plan, "a plan file, without its cluster");
  v.optional("rebalanced_from", c.rebalanced_from,
             "index of the plan whose stages were measured; null = found by the search",
             at_least(0));
  v.required("rounds", c.rounds, "its runs");
  v.optional("failure", c.failure, "first cause of a run that failed; null = none did");
}

template <class Visitor>
void fields(Visitor& v, TuneFileForm& f) {
  v.required("schema_version", f.file.schema_version, "version of this format", between(1, 1));
  v.required("request", f.file.request, "what was asked for, by name");
  v.required("seconds_used", f.file.seconds_used, "by runs of plans", between(0, limits::kSeconds));
  v.required("candidates", f.candidates, "plans in the order in which they were found");
}

namespace {

void require_measured_rounds(const TuneCandidate& candidate, const std::string& path) {
  for (std::size_t i = 0; i < candidate.rounds.size(); ++i)
    if (candidate.rounds[i].step_times_s.empty())
      throw ConfigError(
          fmt::format("{}.rounds[{}].step_times_s: []: expected at least one step", path, i));
}

}  // namespace

TuneFile parse_tune_file(std::string_view text, const std::string& file) {
  TuneFileForm form = read_json<TuneFileForm>(text, file);
  TuneFile result = std::move(form.file);
  for (std::size_t i = 0; i < form.candidates.size(); ++i) {
    TuneCandidateFile& kept = form.candidates[i];
    const std::string path = fmt::format("{}: candidates[{}]", file, i);
    require_measured_rounds(kept.candidate, path);
    if (const auto from = kept.candidate.rebalanced_from; from && *from >= static_cast<int>(i))
      throw ConfigError(fmt::format("{}.rebalanced_from: {}: expected an earlier plan, below {}",
                                    path, *from, i));
    kept.candidate.plan = program::parse_plan(kept.plan.value.dump(), path + ".plan");
    result.candidates.push_back(std::move(kept.candidate));
  }
  return result;
}

std::string to_json(const TuneFile& file) {
  TuneFileForm form{.file = file, .candidates = {}};
  for (const TuneCandidate& candidate : file.candidates)
    form.candidates.push_back(
        {.plan = {Json::parse(program::to_json(candidate.plan))}, .candidate = candidate});
  return write_json(form).dump(2) + "\n";
}

void require_same_request(const TuneFile& kept, const std::map<std::string, std::string>& asked,
                          const std::string& file) {
  std::map<std::string, std::string> names = asked;
  names.insert(kept.request.begin(), kept.request.end());
  std::string different;
  const auto value_in = [](const std::map<std::string, std::string>& values,
                           const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string() : found->second;
  };
  for (const auto& [name, ignored] : names) {
    const std::string was = value_in(kept.request, name), is = value_in(asked, name);
    if (was != is)
      different += fmt::format("\n  request.{}: '{}' there, '{}' asked for", name, was, is);
  }
  if (!different.empty())
    throw ConfigError(fmt::format(
        "{}: holds measurements of another request; name another --folder, or ask for the same:{}",
        file, different));
}

bool runs_the_same(const program::Plan& a, const program::Plan& b) {
  program::Plan other = a;
  other.model_hash = b.model_hash;
  other.cluster_name = b.cluster_name;
  other.cluster_hash = b.cluster_hash;
  other.cluster_json = b.cluster_json;
  other.prediction = b.prediction;
  if (other == b) return true;
  // An even division may be written out.
  other.layers_per_stage = b.layers_per_stage;
  other.count_ends_as_layers = b.count_ends_as_layers;
  return other == b &&
         program::resolved_layers_per_stage(a) == program::resolved_layers_per_stage(b);
}

}  // namespace planner

}  // namespace meshplan
