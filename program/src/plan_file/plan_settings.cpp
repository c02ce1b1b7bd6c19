#include "program/plan_file/plan_settings.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

#include "core/json_paths.hpp"
#include "plan_file/plan_fields.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plan_file/stack_settings.hpp"

namespace meshplan::program {
namespace {

/// With every key that a plan file can have. The hashes of what is embedded go: they guard against
/// edits that nobody meant.
Json complete(std::string_view text, const std::string& file) {
  Json plan = write_json(read_json<PlanFile>(text, file));
  for (const char* key : {"model_hash", "cluster_hash", "prediction"}) plan.erase(key);
  for (const std::string& name : stack_setting_names())
    plan["stack"].emplace(name, nullptr);  // stated by none
  return plan;
}

}  // namespace

ChangedPlan change_plan(std::string_view text, const std::string& file,
                        const std::vector<std::string>& settings,
                        const std::vector<std::string>& other_names) {
  Json plan = complete(text, file);
  std::vector<std::string> paths;
  for (const auto& [path, value] : json_leaves(plan)) paths.push_back(path);
  ChangedPlan changed;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos)
      throw ConfigError(
          fmt::format("--set {}: expected PATH=VALUE, for example --set parallel.tp=4", setting));
    const std::string path = setting.substr(0, equals);
    if (std::ranges::find(paths, path) == paths.end()) {
      std::ranges::copy(other_names, std::back_inserter(paths));
      throw ConfigError(fmt::format("{}: --set {}: no value of a plan; did you mean '{}'?", file,
                                    setting, nearest_choice(path, paths)));
    }
    Json& place = plan.at(json_pointer_of(path));
    const std::string word = setting.substr(equals + 1);
    const bool is_left_open = word == "null" && path.starts_with("stack.");
    Json value = is_left_open ? Json() : json_of_word(word, place);
    changed.changes.push_back(fmt::format("{}: {} -> {}", path, quoted(place), quoted(value)));
    place = std::move(value);
  }
  changed.text = plan.dump(2);
  return changed;
}

std::vector<SettingDifference> differing_settings(const Plan& a, const Plan& b) {
  const auto of_a = json_leaves(complete(to_json(a), "")),
             of_b = json_leaves(complete(to_json(b), ""));
  const auto find = [](const auto& settings, const std::string& path) {
    const auto found =
        std::ranges::find(settings, path, [](const auto& leaf) { return leaf.first; });
    return found == settings.end() ? nullptr : &found->second;
  };
  const auto text = [](const Json* value) { return value ? quoted(*value) : std::string("-"); };
  std::vector<SettingDifference> differences;
  for (const auto& [path, value] : of_a)
    if (const Json* other = find(of_b, path); other == nullptr || *other != value)
      differences.push_back({path, text(&value), text(other)});
  for (const auto& [path, value] : of_b)
    if (find(of_a, path) == nullptr) differences.push_back({path, text(nullptr), text(&value)});
  return differences;
}

}  // namespace meshplan::program
