#pragma once

#include <string>

#include "core/json_fields.hpp"

namespace meshplan {

/// JSON for a reader: bytes that foreign text may hold and UTF-8 does not become U+FFFD.
std::string json_text(const Json& value, int indent = 2);

}  // namespace meshplan
