#include "core/json_text.hpp"

namespace meshplan {

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace meshplan
