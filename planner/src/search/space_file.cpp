// A space as a file says it, and those that come with meshplan.
#include <fmt/format.h>
#include <map>

#include "core/embedded_file.hpp"
#include "core/json_fields.hpp"
#include "planner/search/space.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner {

std::span<const EmbeddedFile> space_presets();

/// What is spelled in words, as it is in the file.
struct SpaceFile {
  Space space;
  std::vector<std::string> recompute;
  std::vector<std::string> refined_modules;
};

template <class Visitor>
void fields(Visitor& v, SpaceFile& f) {
  Space& s = f.space;
  v.optional("about", s.about, "what it is for");
  v.required("context_methods", s.context_methods, "of plans with cp > 1");
  v.required("fewest_context_tokens", s.fewest_context_tokens,
             "of a sequence, that cp leaves a rank", at_least(1));
  v.required("max_micro_batch_size", s.max_micro_batch_size, "sequences", between(1, 1 << 20));
  v.required("recompute", f.recompute, "none, selective, full, or modules: \"norms+mlp\"");
  v.required("zero_stages", s.zero_stages, "0 to 3", between(0, 3));
  v.optional("expert_nodes", s.expert_nodes,
             "tokens once to each node beside to every rank, where an ep group spans several");
  v.required("schedules", s.schedules, "of pipelines; 1f1b is always among them");
  v.required("max_chunks", s.max_chunks, "of a rank, in an interleaved schedule", between(1, 64));
  v.required("recompute_parts", s.recompute_parts,
             "of a chunk's layers, beside all, where layers are recomputed in full", between(0, 1));
  v.optional("refined_modules", f.refined_modules,
             "modules to recompute in the best plans that do not fit without recompute");
  v.required("zero_in_pipelines", s.zero_in_pipelines, "stages 2 and 3 beside pp > 1");
  v.required("bucket_factors", s.bucket_factors, "times the default size of buckets, beside 1",
             between(0.01, 100));
  v.required("rank_orders", s.rank_orders, "beside the default one");
  v.required("offload_optimizer", s.offload_optimizer, "plans with it beside plans without");
  v.optional("offload_parameters", s.offload_parameters,
             "with the optimizer and zero stage 3, weights, too");
  v.optional("offload_activations", s.offload_activations,
             "instead of recompute, in the best plans that do not fit without");
  v.optional("node_orders", s.node_orders,
             "of a mixed cluster: every order of its node types, not only the given one");
}

namespace {

template <class Parse>
auto named(const std::vector<std::string>& names, const std::string& file, const char* path,
           const Parse& parse) {
  std::vector<decltype(parse(names.front()))> all;
  for (std::size_t i = 0; i < names.size(); ++i) try {
      all.push_back(parse(names[i]));
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: {}[{}]: {}", file, path, i, error.what()));
    }
  return all;
}

void check_space(const Space& space, const std::string& file) {
  const auto require = [&](bool holds, const char* path, const char* rule) {
    if (!holds) throw ConfigError(fmt::format("{}: {}: {}", file, path, rule));
  };
  require(!space.context_methods.empty(), "context_methods", "at least one");
  require(!space.recompute.empty(), "recompute", "at least one, for example \"none\"");
  require(!space.zero_stages.empty(), "zero_stages", "at least one, for example 0");
  for (const program::ScheduleKind kind : space.schedules)
    require(kind != program::ScheduleKind::Custom, "schedules",
            "\"custom\" comes from --schedule-file; leave it out");
  for (const std::string& order : space.rank_orders)
    program::Mesh::require_valid(program::ParallelConfig{}, order);
}

}  // namespace

Space parse_space(std::string_view text, const std::string& file) {
  const SpaceFile parsed = read_json<SpaceFile>(text, file);
  Space space = parsed.space;
  space.name = file;
  space.recompute = named(parsed.recompute, file, "recompute", program::parse_recompute);
  space.refined_modules =
      named(parsed.refined_modules, file, "refined_modules",
            [](const std::string& name) { return models::parse_modules(name); });
  check_space(space, file);
  return space;
}

std::vector<std::string> space_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : space_presets()) names.emplace_back(file.name);
  return names;
}

const Space& space_preset(std::string_view name) {
  static const std::map<std::string, Space, std::less<>> kKnown = [] {
    std::map<std::string, Space, std::less<>> spaces;
    for (const EmbeddedFile& file : space_presets())
      spaces.emplace(file.name, parse_space(file.text, std::string(file.name)));
    return spaces;
  }();
  const auto found = kKnown.find(name);
  if (found != kKnown.end()) return found->second;
  throw ConfigError(
      fmt::format("unknown space '{}'; nearest: {}", name, nearest_choice(name, space_names())));
}

}  // namespace meshplan::planner
