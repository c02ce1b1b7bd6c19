#include "program/certificate/certificate.hpp"

#include <algorithm>

#include "core/hash.hpp"
#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "program/plan_file/plan_file.hpp"

namespace meshplan::program {

template <class Visitor>
void fields(Visitor& v, Compared& c) {
  v.required("what", c.what, "kind of figure");
  v.required("name", c.name, "step or parameter");
  v.required("difference", c.difference, "relative", between(0, limits::kMagnitude));
  v.required("tolerance", c.tolerance, "what it may be", between(0, limits::kMagnitude));
  v.required("where", c.where, "index of the element that differs most", at_least(0));
  v.required("value", c.value, "there; null = no finite number");
  v.required("expected", c.expected, "there, on one rank");
  v.optional("checked", c.checked, "messages or copies of this kind that were compared",
             at_least(0));
}

template <class Visitor>
void fields(Visitor& v, Tolerance& t) {
  v.required("relative", t.relative, "of a gradient of the first step");
  v.required("loss", t.loss, "of its loss");
  v.required("floor", t.floor, "part of the global norm that a norm counts as at least");
  v.required("growth", t.growth, "factor for each later step");
  v.required("derivation", t.derivation, "from the format and the sums");
}

template <class Visitor>
void fields(Visitor& v, ProgramProof& p) {
  v.required("stages", p.stages, "of the pipeline", between(1, limits::kRanks));
  v.required("operations", p.operations, "of a step, over all stages", at_least(0));
  v.required("errors", p.errors, "what does not hold of them; empty = proven");
  v.required("left_out", p.left_out, "why nothing was proven; empty = it was");
}

namespace {

/// A TwinResult as a file holds it.
struct TwinResultFile {
  TwinResult result;
  RawJson plan;
  bool agrees = false;
};

struct TwinResultsFile {
  std::vector<TwinResultFile> twins;
};

/// Written for readers of the file alone.
struct FurthestGradientFile {
  int twin = 1;
  Compared compared;
};

struct CertificateFile {
  Certificate certificate;
  std::string verdict;
  std::optional<FurthestGradientFile> furthest_gradient;
  std::vector<TwinResultFile> twins;
  std::vector<std::string> not_shown;
};

template <class Visitor>
void fields(Visitor& v, TwinResultFile& f) {
  TwinResult& r = f.result;
  v.required("agrees", f.agrees, "every figure is within its tolerance");
  v.required("techniques", r.techniques, "that the twin shares with the plan");
  v.optional("device", r.device, "that the twin computed on (its rank 0)");
  v.optional("reference", r.reference, "that the one rank computed on");
  v.optional("reference_precision", r.reference_precision, "that the one rank computed in");
  v.required("ranks", r.ranks, "of the twin", between(1, limits::kRanks));
  v.required("steps", r.steps, "optimizer steps", at_least(1));
  v.required("seeds", r.seeds, "of initial weights and tokens; the last one's figures follow");
  v.required("tolerance", r.tolerance, "");
  v.required("compared", r.compared, "every figure beside one rank's");
  v.required("plan", f.plan, "the twin (see the plan schema)");
}

template <class Visitor>
void fields(Visitor& v, TwinResultsFile& f) {
  v.required("twins", f.twins, "");
}

template <class Visitor>
void fields(Visitor& v, FurthestGradientFile& f) {
  v.required("twin", f.twin, "its number, from 1", at_least(1));
  fields(v, f.compared);
}

template <class Visitor>
void fields(Visitor& v, CertificateFile& f) {
  Certificate& c = f.certificate;
  v.required("schema_version", c.schema_version, "version of this format", between(1, 3));
  v.required("verdict", f.verdict, "agrees or differs");
  v.required("meshplan_version", c.version, "that ran the twins");
  v.required("plan_hash", c.plan_hash, "of the plan as meshplan writes it");
  v.required("plan_precision", c.plan_precision, "that the plan trains in");
  v.required("compared_in", c.compared_in, "precision of the twins");
  v.required("failure", c.failure, "why a twin did not run to its end; empty = all did");
  v.required("uncovered", c.uncovered, "techniques and pairs of the plan that no twin has");
  v.optional("programs", c.programs, "what is proven of the plan's own programs");
  v.optional("furthest_gradient", f.furthest_gradient,
             "the gradient that lies furthest into its tolerance");
  v.required("not_shown", f.not_shown, "what no twin shows");
  v.required("twins", f.twins, "");
}

TwinResultFile to_file(const TwinResult& result) {
  return {.result = result, .plan = {Json::parse(to_json(result.plan))}, .agrees = result.agrees()};
}

std::optional<FurthestGradientFile> to_file(const FurthestGradient& most) {
  if (most.compared == nullptr) return std::nullopt;
  return FurthestGradientFile{.twin = static_cast<int>(most.twin) + 1, .compared = *most.compared};
}

std::vector<TwinResultFile> to_files(const std::vector<TwinResult>& results) {
  std::vector<TwinResultFile> files;
  for (const TwinResult& result : results) files.push_back(to_file(result));
  return files;
}

std::vector<TwinResult> from_files(std::vector<TwinResultFile> files, const std::string& file) {
  std::vector<TwinResult> results;
  for (TwinResultFile& parsed : files) {
    parsed.result.plan = parse_plan(parsed.plan.value.dump(), file);
    results.push_back(std::move(parsed.result));
  }
  return results;
}

}  // namespace

bool TwinResult::agrees() const {
  return !compared.empty() && std::ranges::all_of(compared, &Compared::agrees);
}

bool Certificate::agrees() const {
  return failure.empty() && !twins.empty() && std::ranges::all_of(twins, &TwinResult::agrees) &&
         (!programs || programs->holds());
}

const Compared* furthest(const std::vector<Compared>& compared) {
  const auto found = std::ranges::max_element(compared, {}, &Compared::share);
  return found == compared.end() ? nullptr : &*found;
}

FurthestGradient furthest_gradient(const std::vector<TwinResult>& twins) {
  FurthestGradient most;
  for (std::size_t i = 0; i < twins.size(); ++i)
    for (const Compared& compared : twins[i].compared)
      if (compared.what == kGradient &&
          (most.compared == nullptr || compared.share() > most.compared->share()))
        most = {i, &compared};
  return most;
}

bool compares_devices(const std::vector<TwinResult>& twins) {
  return std::ranges::any_of(twins,
                             [](const TwinResult& twin) { return twin.device != twin.reference; });
}

std::vector<std::string> not_shown(const std::vector<TwinResult>& twins) {
  return {
      "numbers at the plan's own sizes and degrees: a twin has few ranks and small layers; of the "
      "plan itself it is proven what its programs read, not computed",
      compares_devices(twins)
          ? "kernels that only larger shapes choose; of what NCCL sends between GPUs each message: "
            "losses, tensors and copies tell what arrived"
          : "kernels and communication of GPUs: twins run on processor cores",
      "time and memory: `meshplan simulate` predicts and `meshplan run` measures them",
      "the model itself: whether what all layouts agree on is the right network is for "
      "comparisons with other software"};
}

std::string plan_hash(const Plan& plan) {
  return hex(content_hash(to_json(plan)));
}

std::string to_json(const std::vector<TwinResult>& results) {
  return write_json(TwinResultsFile{to_files(results)}).dump(1) + "\n";
}

std::vector<TwinResult> parse_twin_results(std::string_view text, const std::string& file) {
  return from_files(read_json<TwinResultsFile>(text, file).twins, file);
}

std::string to_json(const Certificate& certificate) {
  const CertificateFile file{.certificate = certificate,
                             .verdict = certificate.agrees() ? "agrees" : "differs",
                             .furthest_gradient = to_file(furthest_gradient(certificate.twins)),
                             .twins = to_files(certificate.twins),
                             .not_shown = not_shown(certificate.twins)};
  return write_json(file).dump(2) + "\n";
}

Certificate parse_certificate(std::string_view text, const std::string& file) {
  CertificateFile parsed = read_json<CertificateFile>(text, file);
  parsed.certificate.twins = from_files(std::move(parsed.twins), file);
  return std::move(parsed.certificate);
}

}  // namespace meshplan::program
