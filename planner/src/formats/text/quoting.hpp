// Values as they are written in the languages of exported files (core/quoting.hpp: texts).
#pragma once

#include <string>

#include "core/json_fields.hpp"

namespace meshplan::planner {

/// A double as Python reads it, with as few digits as give it back: "1e-05", "0.1", "1.0".
std::string python_number(double value);

/// A document in block style that YAML 1.1 (PyYAML) and 1.2 read alike: words that either might
/// take for something else are quoted, and doubles have a point.
std::string yaml_document(const Json& value);

}  // namespace meshplan::planner
