// YAML and TOML as the same tree that JSON gives. Libraries read them; without its library a format
// says so.
#pragma once

#include <string>
#include <string_view>

#include "core/json_fields.hpp"

namespace meshplan::planner {

/// Deepest nesting and most values, aliases followed, that a document may come to.
constexpr int kDeepestDocument = 64;
constexpr int kMostDocumentValues = 1 << 14;

/// One YAML document. Plain scalars mean what they mean to PyYAML (YAML 1.1), but 1e-5 is a number;
/// merge keys (<<) are followed. @throws ConfigError "FILE:LINE:COLUMN: ..." for what is no YAML,
/// for tags, and beyond the bounds above
Json parse_yaml(std::string_view text, const std::string& file);

/// A TOML file; dates and times become their text. @throws ConfigError as parse_yaml
Json parse_toml(std::string_view text, const std::string& file);

}  // namespace meshplan::planner
