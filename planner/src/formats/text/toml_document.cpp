#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "formats/text/documents.hpp"
#include "formats/text/settings.hpp"
#if MESHPLAN_TOML
#include <sstream>
#include <toml++/toml.h>
#endif

namespace meshplan::planner {
#if MESHPLAN_TOML
namespace {

template <class Moment>
std::string text_of(const Moment& moment) {
  std::ostringstream stream;
  stream << moment;
  return stream.str();
}

/// Where a quoted text that begins at `at` ends: behind its closing quotes, or the end of it all.
std::size_t end_of_text(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string triple(3, quote);
  const std::string closing = text.substr(at, 3) == triple ? triple : std::string(1, quote);
  for (std::size_t place = at + closing.size(); place < text.size(); ++place) {
    if (quote == '"' && text[place] == '\\')
      ++place;
    else if (text.substr(place, closing.size()) == closing)
      return place + closing.size();
  }
  return text.size();
}

/// The library takes tables apart by recursion, and dots of a key nest them as deep as they are
/// many.
void check_depth(std::string_view text, const std::string& file) {
  int brackets = 0;
  int dots = 0;  // of one key
  int line = 1;
  for (std::size_t place = 0; place < text.size();) {
    const char c = text[place];
    if (c == '"' || c == '\'') {
      place = end_of_text(text, place);
      continue;
    }
    if (c == '#') {
      place = std::min(text.find('\n', place), text.size());
      continue;
    }
    brackets += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    dots = c == '.'                                                         ? dots + 1
           : std::string_view(",=[]{}\n").find(c) != std::string_view::npos ? 0
                                                                            : dots;
    line += c == '\n';
    if (std::max(brackets, dots) > kDeepestDocument)
      throw ConfigError(
          fmt::format("{}:{}: nested deeper than {} levels", file, line, kDeepestDocument));
    ++place;
  }
}

class TomlConverter {
 public:
  explicit TomlConverter(const std::string& file) : file_(file) {}

  Json convert(const toml::node& node, int depth = 0) {
    if (depth > kDeepestDocument)
      throw ConfigError(fmt::format("{}:{}: nested deeper than {} levels", file_,
                                    node.source().begin.line, kDeepestDocument));
    Json value;
    if (const auto* table = node.as_table()) {
      value = Json::object();
      for (const auto& [key, child] : *table)
        value[std::string(key.str())] = convert(child, depth + 1);
    } else if (const auto* array = node.as_array()) {
      value = Json::array();
      for (const toml::node& child : *array) value.push_back(convert(child, depth + 1));
    } else {
      node.visit([&](const auto& leaf) {
        using Leaf = std::remove_cvref_t<decltype(leaf)>;
        if constexpr (toml::is_date<Leaf> || toml::is_time<Leaf> || toml::is_date_time<Leaf>)
          value = text_of(leaf.get());
        else if constexpr (!toml::is_table<Leaf> && !toml::is_array<Leaf>)
          value = leaf.get();
      });
    }
    return value;
  }

 private:
  const std::string& file_;
};

}  // namespace

Json parse_toml(std::string_view text, const std::string& file) {
  check_configuration_text(text, file);
  check_depth(text, file);
  try {
    return TomlConverter(file).convert(toml::parse(text));
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}:{}: not valid TOML: {}", file, error.source().begin.line,
                                  error.source().begin.column,
                                  printable_line(error.description())));
  }
}

#else

Json parse_toml(std::string_view /*text*/, const std::string& file) {
  throw ConfigError(fmt::format(
      "{}: this meshplan was built without toml++, which reads TOML; install libtomlplusplus-dev "
      "and build again",
      file));
}

#endif
}  // namespace meshplan::planner
