#include "models/spec_difference.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/json_fields.hpp"

namespace meshplan::models {
namespace {

constexpr const char* kAbsent = "absent";

void compare(const std::string& field, const Json& left, const Json& right,
             std::vector<FieldDifference>& found) {
  if (left == right) return;
  if (left.is_object() && right.is_object()) {
    const auto path = [&](const std::string& key) {
      return field.empty() ? key : fmt::format("{}.{}", field, key);
    };
    const auto value_of = [](const Json& object, const std::string& key) {
      return object.contains(key) ? object.at(key) : Json(nullptr);  // what is left out where unset
    };
    for (const auto& [key, value] : left.items())
      compare(path(key), value, value_of(right, key), found);
    for (const auto& [key, value] : right.items())
      if (!left.contains(key)) compare(path(key), nullptr, value, found);
  } else if (left.is_object() || right.is_object()) {
    found.push_back(
        {field, left.is_object() ? "given" : kAbsent, right.is_object() ? "given" : kAbsent});
  } else if (left.is_array() && right.is_array()) {
    const std::size_t shorter = std::min(left.size(), right.size());
    std::size_t first = 0;
    while (first < shorter && left[first] == right[first]) ++first;
    const auto entry = [&](const Json& list) {
      return first < list.size() ? list[first].dump() : fmt::format("{} entries", list.size());
    };
    found.push_back({fmt::format("{}[{}]", field, first), entry(left), entry(right)});
  } else {
    const auto text = [](const Json& value) {
      return value.is_null() ? std::string(kAbsent) : value.dump();
    };
    found.push_back({field, text(left), text(right)});
  }
}

}  // namespace

std::vector<FieldDifference> differences(const ModelSpec& left, const ModelSpec& right) {
  std::vector<FieldDifference> found;
  compare("", Json::parse(to_json(left)), Json::parse(to_json(right)), found);
  return found;
}

bool is_training_choice(std::string_view field) {
  constexpr std::array<std::string_view, 7> kChoices = {"moe.capacity_factor",
                                                        "moe.router.aux_loss_coefficient",
                                                        "moe.router.z_loss_coefficient",
                                                        "moe.router.correction_bias_rate",
                                                        "dropout",
                                                        "mtp_layers",
                                                        "mtp_loss_coefficient"};
  return std::ranges::find(kChoices, field) != kChoices.end();
}

}  // namespace meshplan::models
