#include "program/plan_file/plan_file.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/json_text.hpp"
#include "plan_file/plan_fields.hpp"
#include "program/checks/check.hpp"

namespace meshplan::program {

namespace {

/// An object as it is written inside a plan, whatever the white space it came with; "" for none.
std::string canonical(const Json& object) {
  return object.is_null() ? std::string() : object.dump(2);
}

/// The hash of an embedded object, so that an edit after planning is noticed; "" for none.
std::string hash_of(const std::string& canonical_text) {
  return canonical_text.empty() ? std::string() : hex(content_hash(canonical_text));
}

/// @param stored  the hash that the file gives for `what`; empty = unchecked
void check_hash(const std::string& file, std::string_view what, const std::string& stored,
                const std::string& actual) {
  if (stored.empty() || stored == actual) return;
  throw ConfigError(fmt::format(
      "{}: {}_hash: {} does not match the {} in this file, which hashes to {}; the {} was edited "
      "after the plan was made: plan again, or remove the key to use it as it is",
      file, what, stored, what, actual.empty() ? "nothing" : actual, what));
}

}  // namespace

PlanFile to_file(const Plan& plan) {
  const std::string model = models::to_json(plan.model);
  const Json cluster = plan.cluster_json.empty() ? Json() : Json::parse(plan.cluster_json);
  return {.schema_version = plan.schema_version,
          .model = {Json::parse(model)},
          .model_hash = hash_of(model),
          .cluster_name = plan.cluster_name,
          .cluster_hash = hash_of(canonical(cluster)),
          .cluster = {cluster},
          .plan = plan};
}

Plan from_file(PlanFile parsed, const std::string& file) {
  Plan plan = std::move(parsed.plan);
  plan.schema_version = parsed.schema_version;
  plan.model = models::parse_model_spec(parsed.model.value.dump(), file + ": model");
  plan.model_hash = hash_of(models::to_json(plan.model));
  check_hash(file, "model", parsed.model_hash, plan.model_hash);
  plan.cluster_name = std::move(parsed.cluster_name);
  require_lines(parsed.cluster.value, file + ": cluster");
  plan.cluster_json = canonical(parsed.cluster.value);
  plan.cluster_hash = hash_of(plan.cluster_json);
  check_hash(file, "cluster", parsed.cluster_hash, plan.cluster_hash);
  return plan;
}

Plan read_plan(std::string_view text, const std::string& file) {
  return from_file(read_json<PlanFile>(text, file), file);
}

Plan parse_plan(std::string_view text, const std::string& file) {
  Plan plan = read_plan(text, file);
  const std::vector<Violation> violations = check(plan);
  if (!violations.empty())
    throw ConfigError(fmt::format("{}: {}", file, violations.front().message));
  return plan;
}

std::string to_json(const Plan& plan) {
  return json_text(write_json(to_file(plan))) + "\n";
}

std::string plan_schema() {
  return json_schema<PlanFile>().dump(2) + "\n";
}

}  // namespace meshplan::program
