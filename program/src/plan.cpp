#include "program/plan.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "plan_fields.hpp"

namespace meshplan::program {

PlanFile to_file(const Plan& plan) {
  const std::string model = models::to_json(plan.model);
  return {.schema_version = plan.schema_version,
          .model = {Json::parse(model)},
          .model_hash = hex(content_hash(model)),
          .cluster_name = plan.cluster_name,
          .cluster_hash = plan.cluster_json.empty() ? "" : hex(content_hash(plan.cluster_json)),
          .cluster = {plan.cluster_json.empty() ? Json() : Json::parse(plan.cluster_json)},
          .plan = plan};
}

Plan from_file(PlanFile parsed, const std::string& file) {
  Plan plan = std::move(parsed.plan);
  plan.schema_version = parsed.schema_version;
  plan.model = models::parse_model_spec(parsed.model.value.dump(), file + ": model");
  plan.model_hash = hex(content_hash(models::to_json(plan.model)));
  if (!parsed.model_hash.empty() && parsed.model_hash != plan.model_hash)
    throw ConfigError(fmt::format(
        "{}: model_hash: {} does not match the model in this file, which hashes to {}; the model "
        "was "
        "edited after the plan was made: plan again, or remove the key to use it as it is",
        file, parsed.model_hash, plan.model_hash));
  plan.cluster_name = std::move(parsed.cluster_name);
  if (!parsed.cluster.value.is_null()) {
    plan.cluster_json = parsed.cluster.value.dump(2);
    plan.cluster_hash = hex(content_hash(plan.cluster_json));
  }
  return plan;
}

Plan parse_plan(std::string_view text, const std::string& file) {
  Plan plan = from_file(read_json<PlanFile>(text, file), file);
  const std::vector<Violation> violations = check(plan);
  if (!violations.empty())
    throw ConfigError(fmt::format("{}: {}", file, violations.front().message));
  return plan;
}

std::string to_json(const Plan& plan) {
  return write_json(to_file(plan)).dump(2) + "\n";
}

std::string plan_schema() {
  return json_schema<PlanFile>().dump(2) + "\n";
}

std::vector<int> resolved_layers_per_stage(const Plan& plan) {
  if (!plan.layers_per_stage.empty()) return plan.layers_per_stage;
  const int pp = plan.parallel.pp;
  // A remainder goes to the middle stages: the embedding and the head weigh on the first and the
  // last.
  std::vector<int> layers(static_cast<std::size_t>(pp), plan.model.num_layers / pp);
  const int remainder = plan.model.num_layers % pp;
  const int first = std::max(0, (pp - remainder) / 2);
  for (int i = 0; i < remainder; ++i) ++layers[static_cast<std::size_t>(first + i)];
  return layers;
}

}  // namespace meshplan::program
