#include "formats/text/quoting.hpp"

#include <fmt/format.h>

#include "core/quoting.hpp"

namespace meshplan::planner {
namespace {

std::string yaml_scalar(const Json& value) {
  if (value.is_string()) return yaml_text(value.get_ref<const std::string&>());
  if (value.is_number_float()) {
    std::string text = python_number(value.get<double>());
    // PyYAML takes 1e-05 for a text.
    if (const std::size_t e = text.find('e');
        e != std::string::npos && text.find('.') == std::string::npos)
      text.insert(e, ".0");
    return text;
  }
  return value.dump();
}

void write_yaml(const Json& value, int indent, std::string& out) {
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  const auto entry = [&](const std::string& head, const Json& child) {
    out += margin + head;
    if (child.is_structured() && !child.empty()) {
      out += '\n';
      write_yaml(child, indent + 2, out);
    } else {
      out += ' ' + yaml_scalar(child) + '\n';
    }
  };
  if (value.is_object()) {
    for (const auto& [key, child] : value.items()) entry(yaml_text(key) + ":", child);
    return;
  }
  for (const Json& child : value) {
    if (child.is_structured() && !child.empty()) {
      std::string inner;  // its first line stands behind the dash
      write_yaml(child, indent + 2, inner);
      inner[static_cast<std::size_t>(indent)] = '-';
      out += inner;
    } else {
      entry("-", child);
    }
  }
}

}  // namespace

std::string python_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string yaml_document(const Json& value) {
  std::string text;
  write_yaml(value, 0, text);
  return text;
}

}  // namespace meshplan::planner
