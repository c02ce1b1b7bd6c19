#include "formats/text/quoting.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace meshplan::planner {
namespace {

bool is_word_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == '/';
}

/// What neither version of YAML takes for a number, a truth value, null or a date.
bool is_plain_in_yaml(const std::string& text) {
  constexpr std::array<std::string_view, 14> kReserved = {
      "y", "n", "yes", "no", "on", "off", "true", "~", "nan", "null", "none", "false", "inf", ""};
  std::string lower = text;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (std::ranges::find(kReserved, lower) != kReserved.end()) return false;
  const char first = text.front();
  const bool letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
  return letter && std::ranges::all_of(text, is_word_letter);
}

std::string yaml_scalar(const Json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return is_plain_in_yaml(text) ? text : value.dump();
  }
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
    for (const auto& [key, child] : value.items()) entry(yaml_scalar(Json(key)) + ":", child);
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

std::string python_literal(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_float()) return python_number(value.get<double>());
  std::vector<std::string> parts;
  if (value.is_array()) {
    for (const Json& item : value) parts.push_back(python_literal(item));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.items())
      parts.push_back(Json(key).dump() + ": " + python_literal(item));
    return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  return value.dump();  // JSON's escapes of a text are Python's
}

std::string yaml_document(const Json& value) {
  std::string text;
  write_yaml(value, 0, text);
  return text;
}

}  // namespace meshplan::planner
