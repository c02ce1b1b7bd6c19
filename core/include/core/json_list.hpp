// JSON whose bulk is one long list, read without holding more than an element of it: traces.
// Include this only from .cpp files, as core/json_fields.hpp.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fields.hpp"
#include "core/text_blocks.hpp"

namespace meshplan {

/// A member of an object that is kept, where others are skipped. The elements of a list are as the
/// list.
struct KeptMember {
  std::string_view key;
  std::vector<KeptMember> members = {};  // of its value; none: all
};

/// The largest trees of JSON, as bytes in memory: of a text that comes in blocks, and of one that
/// is held as a whole.
constexpr std::size_t kMostTreeBytes = std::size_t{1} << 27;
constexpr std::size_t kMostWholeTreeBytes = std::size_t{3} << 27;

struct JsonListReading {
  std::string_view key = {};                     // of the list, in the root; empty: there is none
  std::vector<KeptMember> kept = {};             // of the root; none: all
  bool keys_are_unique = true;                   // else the last value of a key counts
  std::size_t most_tree_bytes = kMostTreeBytes;  // of the root with one element of the list
  std::function<void(const Json& element, std::size_t index)> use = {};
};

/// @returns the root, with the list empty
/// @throws ConfigError naming file, line and column for what is no JSON; for more than 64 levels, a
/// key that appears twice, and what is too large
Json read_json_list(const TextBlocks& text, std::string_view file, const JsonListReading& reading);

/// @param object  in the file at `path`, "" for the root @throws ConfigError
template <DescribedStruct T>
T read_object(const Json& object, const std::string& file, const std::string& path) {
  JsonReader reader(object, file, path);
  T value{};
  fields(reader, value);
  reader.finish();
  return value;
}

}  // namespace meshplan
