// Values inside JSON by the paths that messages and --set have: "parallel.tp",
// "fabric[1].latency_us".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_fields.hpp"

namespace meshplan {

/// All values below `root` that hold no object, in order, with their paths. A list of objects is
/// entered, any other list is a value.
std::vector<std::pair<std::string, Json>> json_leaves(const Json& root);

/// @param path  as json_leaves gives it
Json::json_pointer json_pointer_of(std::string_view path);

/// What a word says in place of `before`: JSON, a string also without quotes and a list without
/// brackets; of words, without their quotes.
Json json_of_word(const std::string& word, const Json& before);

}  // namespace meshplan
