#include "core/json_list.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <set>

#include "core/line.hpp"
#include "core/printable.hpp"

namespace meshplan {
namespace {

constexpr std::size_t kDeepestNesting =
    64;  // walking a value recurses, so an input may not choose the depth

constexpr std::size_t kAllocated = 16;  // bytes that an allocation takes beside its own

/// The characters of a text in blocks, and where in the text they stand.
class Characters {
 public:
  Characters(const TextBlocks& blocks, std::string_view file) : blocks_(blocks), file_(file) {}

  char current() const { return block_[next_]; }
  void advance() { ++next_; }

  /// Takes the next block where one is at its end. @throws ConfigError for an endless token
  bool at_end() {
    if (next_ < block_.size()) return false;
    count(block_);
    next_ = 0;
    if (bytes_ - token_begin_ > kMostTokenBytes)
      throw ConfigError(fmt::format(
          "{}: a string, a number or the space between two has more than {} bytes, the limit",
          place(bytes_), kMostTokenBytes));
    block_ = blocks_();
    return block_.empty();
  }

  void end_token() { token_begin_ = bytes_ + next_; }

  /// "FILE:LINE:COLUMN" of a byte of this block, or of the last one unless that is a newline; all
  /// counted from 1. @param back  columns before it
  std::string place(std::size_t byte, std::size_t back = 0) const {
    const std::size_t before = std::max<std::size_t>(byte, 1) - 1;
    std::size_t lines = lines_, line_begin = line_begin_;
    if (before > bytes_) {
      const std::string_view rest = block_.substr(0, before - bytes_);
      lines += static_cast<std::size_t>(std::ranges::count(rest, '\n'));
      if (const auto newline = rest.rfind('\n'); newline != std::string_view::npos)
        line_begin = bytes_ + newline + 1;
    }
    return fmt::format("{}:{}:{}", file_, lines + 1, before - line_begin + 1 - back);
  }

 private:
  void count(std::string_view block) {
    lines_ += static_cast<std::size_t>(std::ranges::count(block, '\n'));
    if (const auto newline = block.rfind('\n'); newline != std::string_view::npos)
      line_begin_ = bytes_ + newline + 1;
    bytes_ += block.size();
  }

  const TextBlocks& blocks_;
  std::string_view file_;
  std::string_view block_;
  std::size_t next_ = 0;
  std::size_t token_begin_ = 0;  // or of the space before it
  // Of the blocks before this one.
  std::size_t bytes_ = 0;
  std::size_t lines_ = 0;
  std::size_t line_begin_ = 0;
};

/// As the JSON library reads characters: all that are equal to the default one have ended.
class CharacterIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  CharacterIterator() = default;
  explicit CharacterIterator(Characters& characters) : characters_(&characters) {}
  char operator*() const { return characters_->current(); }
  CharacterIterator& operator++() {
    characters_->advance();
    return *this;
  }
  bool operator==(const CharacterIterator& /*end*/) const { return characters_->at_end(); }

 private:
  Characters* characters_ = nullptr;
};

/// The library's message without its "[json.exception.NAME] " and without its own place.
std::string_view explanation(const Json::exception& error, std::string_view prefix_end) {
  const std::string_view text = error.what();
  return text.substr(text.find(prefix_end) + prefix_end.size());
}

/// Takes the library's events and makes values of those that are kept.
class TreeBuilder {
 public:
  TreeBuilder(Characters& characters, std::string_view file, const JsonListReading& reading)
      : characters_(characters), file_(file), reading_(reading) {}

  Json take() { return std::move(root_); }

  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(std::int64_t value) { return scalar(value); }
  bool number_unsigned(std::uint64_t value) { return scalar(value); }
  bool number_float(double value, const std::string& /*text*/) { return scalar(value); }
  bool string(std::string& value) {
    if (!is_skipped()) count(kAllocated + sizeof(std::string) + value.size());
    return scalar(std::move(value));
  }
  bool binary(Json::binary_t& /*value*/) { return false; }  // no text holds any
  bool start_object(std::size_t /*size*/) { return start(Json::object()); }
  bool start_array(std::size_t /*size*/) { return start(Json::array()); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }

  bool key(std::string& name) {
    event();
    if (skipped_levels_ > 0) return true;
    Open& object = open_.back();
    next_members_ = nullptr;
    skip_next_ = false;
    if (object.members != nullptr) {
      const auto kept = std::ranges::find(*object.members, name, &KeptMember::key);
      skip_next_ = kept == object.members->end();
      if (skip_next_) return true;
      if (!kept->members.empty()) next_members_ = &kept->members;
    }
    if (open_.size() == 1) in_list_member_ = name == reading_.key && !reading_.key.empty();
    next_ = member(object, name);
    return true;
  }

  [[noreturn]] bool parse_error(std::size_t byte, const std::string& token,
                                const Json::exception& error) {
    if (dynamic_cast<const Json::parse_error*>(&error) != nullptr)
      throw ConfigError(fmt::format("{}: not valid JSON: {}", characters_.place(byte),
                                    printable_line(explanation(error, ": "))));
    // A number beyond the range of a double: "... '1e999'". Its begin is the place.
    throw ConfigError(
        fmt::format("{}: not valid JSON: {}",
                    characters_.place(byte, std::max<std::size_t>(token.size(), 1) - 1),
                    explanation(error, "] ")));
  }

 private:
  struct Open {
    Json* value;
    const std::vector<KeptMember>* members;  // of it, or of its elements; null: all
    std::set<std::string> keys;              // where they are unique
    std::size_t tree_bytes;                  // of all that came before its content
  };

  void event() {
    characters_.end_token();
    if (open_.size() + skipped_levels_ > kDeepestNesting)
      throw ConfigError(fmt::format("{}: nested deeper than {} levels", file_, kDeepestNesting));
  }

  bool is_skipped() const { return skipped_levels_ > 0 || skip_next_; }

  /// Is what is open the list whose elements are used one by one?
  bool in_list() const {
    return open_.size() == 2 && in_list_member_ && open_.back().value->is_array();
  }

  void count(std::size_t bytes) {
    tree_bytes_ += bytes;
    if (tree_bytes_ <= reading_.most_tree_bytes) return;
    const bool in_element = in_list_member_ && open_.size() >= 2;
    throw ConfigError(
        fmt::format("{}: {} takes more than {} bytes of memory, the limit", file_,
                    in_element ? fmt::format("{}[{}]", reading_.key, index_) : "what it holds",
                    reading_.most_tree_bytes));
  }

  Json* member(Open& object, std::string& name) {
    count(sizeof(Json::object_t::value_type) + name.size());
    if (reading_.keys_are_unique) {
      if (!object.keys.insert(name).second)
        throw ConfigError(fmt::format("{}: the key '{}' appears twice", file_, short_line(name)));
      count(kAllocated + 2 * sizeof(std::string) + name.size());
    }
    auto& members = object.value->get_ref<Json::object_t&>();
    // Looking for a key is linear: only where few are kept.
    if (!reading_.keys_are_unique && object.members != nullptr) return &members[name];
    return &members.emplace_back(std::move(name), nullptr).second;
  }

  /// Where the next value belongs. @param members  of it
  Json* place_of_next(const std::vector<KeptMember>*& members) {
    if (open_.empty()) {
      members = reading_.kept.empty() ? nullptr : &reading_.kept;
      return &root_;
    }
    Open& parent = open_.back();
    if (parent.value->is_object()) {
      members = next_members_;
      return next_;
    }
    members = parent.members;
    if (in_list()) return &element_;
    count(sizeof(Json));
    return &parent.value->emplace_back(nullptr);
  }

  template <class T>
  bool scalar(T&& value) {
    event();
    if (skipped_levels_ == 0 && !std::exchange(skip_next_, false)) {
      const std::vector<KeptMember>* members = nullptr;
      Json* place = place_of_next(members);
      *place = std::forward<T>(value);
      if (place == &element_) use_element();
    }
    return true;
  }

  bool start(Json&& empty) {
    event();
    if (is_skipped()) {
      ++skipped_levels_;
      return true;
    }
    count(kAllocated + sizeof(Json::array_t));
    const std::vector<KeptMember>* members = nullptr;
    Json* place = place_of_next(members);
    *place = std::move(empty);
    open_.push_back({place, members, {}, tree_bytes_});
    return true;
  }

  bool end() {
    characters_.end_token();
    if (skipped_levels_ > 0) {
      if (--skipped_levels_ == 0) skip_next_ = false;
      return true;
    }
    const bool is_element = open_.back().value == &element_;
    open_.pop_back();
    if (is_element) use_element();
    return true;
  }

  void use_element() {
    reading_.use(element_, index_++);
    element_ = nullptr;
    tree_bytes_ = open_.back().tree_bytes;
  }

  Characters& characters_;
  std::string_view file_;
  const JsonListReading& reading_;
  Json root_;
  Json element_;
  std::size_t index_ = 0;
  std::vector<Open> open_;
  Json* next_ = nullptr;  // the member whose value comes next
  const std::vector<KeptMember>* next_members_ = nullptr;
  bool skip_next_ = false;
  std::size_t skipped_levels_ = 0;
  bool in_list_member_ = false;
  std::size_t tree_bytes_ = 0;
};

}  // namespace

Json read_json_list(const TextBlocks& text, std::string_view file, const JsonListReading& reading) {
  Characters characters(text, file);
  TreeBuilder builder(characters, file, reading);
  Json::sax_parse(CharacterIterator(characters), CharacterIterator(), &builder);
  return builder.take();
}

}  // namespace meshplan
