#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "formats/text/documents.hpp"
#include "formats/text/settings.hpp"
#if MESHPLAN_YAML
#include <sstream>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>
#endif

namespace meshplan::planner {
#if MESHPLAN_YAML
namespace {

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, text) != words.end();
}

/// YAML 1.1, sections of the types null, bool, int and float, as PyYAML resolves them.
Json scalar_of(const std::string& text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (is_one_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}))
    return false;
  std::string digits = text;
  std::erase(digits, '_');
  if (digits.starts_with('+')) digits.erase(0, 1);
  std::int64_t whole = 0;
  const char* const end = digits.data() + digits.size();
  if (const auto read = std::from_chars(digits.data(), end, whole);
      read.ec == std::errc() && read.ptr == end)
    return whole;
  const bool numeric = digits.find_first_not_of("+-.eE0123456789") == std::string::npos;
  if (const auto number = parse_number(digits, -1e300, 1e300); number && numeric) return *number;
  return text;
}

/// Builds the tree while the parser goes, so that nothing unbounded is ever held.
class YamlBuilder : public YAML::EventHandler {
 public:
  explicit YamlBuilder(const std::string& file) : file_(file) {}

  Json take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, anchor, {}); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(mark, "an alias inside its own anchor");
    count(mark, values_in(found->second));
    add(mark, 0, found->second);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (tag == "!") return add(mark, anchor, text);
    check_tag(mark, tag);
    add(mark, anchor, awaits_key() ? Json(text) : scalar_of(text));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, Json::array());
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, Json::object());
  }
  void OnMapEnd() override { close(); }

 private:
  struct OpenValue {
    YAML::Mark mark;
    YAML::anchor_t anchor = 0;
    Json value;
    std::optional<std::string> key;  // of a map: read, its value awaited
    std::vector<Json> merged;        // values of its merge keys
  };

  [[noreturn]] void fail(const YAML::Mark& mark, std::string_view rule) const {
    throw ConfigError(fmt::format("{}:{}:{}: {}", file_, mark.line + 1, mark.column + 1, rule));
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?")
      fail(mark, fmt::format("the tag {} is not read; write a plain value", tag));
  }

  bool awaits_key() const {
    return !open_.empty() && open_.back().value.is_object() && !open_.back().key;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Json value) {
    check_tag(mark, tag);
    if (awaits_key()) fail(mark, "a key must be a word");
    if (static_cast<int>(open_.size()) >= kDeepestDocument)
      fail(mark, fmt::format("nested deeper than {} levels", kDeepestDocument));
    open_.push_back({.mark = mark, .anchor = anchor, .value = std::move(value)});
  }

  void close() {
    OpenValue closed = std::move(open_.back());
    open_.pop_back();
    for (const Json& merged : closed.merged)
      for (const auto& [key, value] : merged.items())
        if (!closed.value.contains(key)) closed.value[key] = value;
    add(closed.mark, closed.anchor, std::move(closed.value));
  }

  static int values_in(const Json& value) {
    int count = 1;
    if (value.is_structured())
      for (const Json& child : value) count += values_in(child);
    return count;
  }

  void count(const YAML::Mark& mark, int values) {
    count_ += values;
    if (count_ > kMostDocumentValues)
      fail(mark,
           fmt::format("comes to more than {} values, aliases followed", kMostDocumentValues));
  }

  void add(const YAML::Mark& mark, YAML::anchor_t anchor, Json value) {
    count(mark, 1);
    if (anchor != 0) {
      count(mark, values_in(value));
      anchors_[anchor] = value;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    OpenValue& parent = open_.back();
    if (parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else if (!parent.key) {
      take_key(mark, parent, value);
    } else {
      take_value(mark, parent, std::move(value));
    }
  }

  void take_key(const YAML::Mark& mark, OpenValue& map, const Json& key) const {
    if (!key.is_string()) fail(mark, "a key must be a word");
    map.key = key.get<std::string>();
    if (map.value.contains(*map.key))
      fail(mark, fmt::format("the key '{}' appears twice", *map.key));
  }

  void take_value(const YAML::Mark& mark, OpenValue& map, Json value) const {
    if (*map.key != "<<") {
      map.value[*map.key] = std::move(value);
    } else if (value.is_object()) {
      map.merged.push_back(std::move(value));
    } else if (value.is_array() &&
               std::ranges::all_of(value, [](const Json& one) { return one.is_object(); })) {
      for (Json& one : value) map.merged.push_back(std::move(one));
    } else {
      fail(mark, "a merge key (<<) must hold a map or a list of them");
    }
    map.key.reset();
  }

  const std::string& file_;
  Json root_;
  std::vector<OpenValue> open_;
  std::map<YAML::anchor_t, Json> anchors_;
  int count_ = 0;
};

}  // namespace

Json parse_yaml(std::string_view text, const std::string& file) {
  check_configuration_text(text, file);
  YamlBuilder builder(file);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) throw ConfigError(file + ": holds no YAML document");
  } catch (const YAML::Exception& error) {
    throw ConfigError(fmt::format("{}:{}:{}: not valid YAML: {}", file, error.mark.line + 1,
                                  error.mark.column + 1, printable_line(error.msg)));
  }
  return builder.take();
}

#else

Json parse_yaml(std::string_view /*text*/, const std::string& file) {
  throw ConfigError(fmt::format(
      "{}: this meshplan was built without yaml-cpp, which reads YAML; install libyaml-cpp-dev and "
      "build again",
      file));
}

#endif
}  // namespace meshplan::planner
