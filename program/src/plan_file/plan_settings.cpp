#include "program/plan_file/plan_settings.hpp"

#include <algorithm>

#include "plan_file/plan_fields.hpp"

namespace meshplan::program {
namespace {

/// All paths below `value` that hold no object.
void collect_paths(const Json& value, const std::string& path, std::vector<std::string>& paths) {
  if (!value.is_object() || value.empty()) {
    paths.push_back(path);
    return;
  }
  for (const auto& [key, child] : value.items())
    collect_paths(child, path.empty() ? key : path + "." + key, paths);
}

std::string pointer_of(std::string path) {
  std::ranges::replace(path, '.', '/');
  return "/" + path;
}

/// What was meant for a place that holds `before`.
Json value_of(const std::string& word, const Json& before) {
  Json value = Json::parse(word, nullptr, /*allow_exceptions=*/false);
  if (before.is_array() && !value.is_array()) {
    const Json list = Json::parse("[" + word + "]", nullptr, /*allow_exceptions=*/false);
    if (!list.is_discarded()) return list;
  }
  return value.is_discarded() || (before.is_string() && !value.is_string()) ? Json(word) : value;
}

/// With every key that a plan file can have. The hashes of what is embedded go: they guard against
/// edits that nobody meant.
Json complete(std::string_view text, const std::string& file) {
  Json plan = write_json(read_json<PlanFile>(text, file));
  for (const char* key : {"model_hash", "cluster_hash", "prediction"}) plan.erase(key);
  return plan;
}

}  // namespace

ChangedPlan change_plan(std::string_view text, const std::string& file,
                        const std::vector<std::string>& settings) {
  Json plan = complete(text, file);
  std::vector<std::string> paths;
  collect_paths(plan, "", paths);
  ChangedPlan changed;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos)
      throw ConfigError(
          fmt::format("--set {}: expected PATH=VALUE, for example --set parallel.tp=4", setting));
    const std::string path = setting.substr(0, equals);
    if (std::ranges::find(paths, path) == paths.end())
      throw ConfigError(fmt::format("{}: --set {}: no value of a plan; did you mean '{}'?", file,
                                    setting, nearest_choice(path, paths)));
    Json& place = plan.at(Json::json_pointer(pointer_of(path)));
    Json value = value_of(setting.substr(equals + 1), place);
    changed.changes.push_back(fmt::format("{}: {} -> {}", path, quoted(place), quoted(value)));
    place = std::move(value);
  }
  changed.text = plan.dump(2);
  return changed;
}

}  // namespace meshplan::program
