#include <fmt/format.h>

#include "core/error.hpp"
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
  check_configuration_size(text, file);
  try {
    return TomlConverter(file).convert(toml::parse(text));
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}:{}: not valid TOML: {}", file, error.source().begin.line,
                                  error.source().begin.column, error.description()));
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
