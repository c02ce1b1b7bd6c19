// A foreign configuration as a tree of keys, of which a reader takes what it knows. Whatever it did
// not ask for is listed afterwards, so that nothing is dropped silently.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fields.hpp"
#include "core/limits.hpp"

namespace meshplan::planner {

/// The most bytes of a foreign file that are read; those that people write have some thousand. Keys
/// are kept in their order, and finding one costs as much as there are.
constexpr std::size_t kLargestConfiguration = std::size_t{1} << 18;

/// @throws ConfigError for a larger file, and with the place of what is no UTF-8
void check_configuration_text(std::string_view text, const std::string& file);

class Settings {
 public:
  /// @param open_word  a text that leaves its key to somebody else ("auto" of DeepSpeed); empty =
  /// there is none
  Settings(Json root, std::string file, std::string open_word = "");

  const std::string& file() const { return file_; }

  /// The value at "key.key". All of them are absent where the key is, or where it is null or left
  /// open. @throws ConfigError naming file, path, value and what was expected
  std::optional<bool> flag(std::string_view path);
  std::optional<std::int64_t> integer(std::string_view path,
                                      Bounds bounds = between(1, limits::kRanks));
  std::optional<int> small(std::string_view path, Bounds bounds = between(1, limits::kRanks));
  std::optional<double> number(std::string_view path, Bounds bounds = between(0, limits::kRate));
  std::optional<std::string> text(std::string_view path);
  /// One of the choices, in lower or upper case.
  std::optional<std::string> word(std::string_view path, std::span<const std::string_view> choices);
  /// A value of any kind; null where it is absent or null.
  const Json* value(std::string_view path);

  /// Is there such a key, whatever it holds? Does not count as asking for it.
  bool has(std::string_view path) const;
  /// Keys of an object, in the order of the file; empty where it is absent.
  std::vector<std::string> keys(std::string_view path) const;

  [[noreturn]] void fail(std::string_view path, std::string_view expected) const;

  /// "path = value" of everything that nobody asked for, with the key that was meant if it is
  /// written nearly so.
  std::vector<std::string> unread() const;
  /// Paths that were asked for and are left open.
  const std::vector<std::string>& left_open() const { return left_open_; }

 private:
  const Json* find(std::string_view path) const;
  std::optional<double> any_number(std::string_view path, Bounds bounds, std::string_view kind);
  bool asks_below(const std::string& path) const;
  void list_unread(const Json& value, const std::string& path,
                   std::vector<std::string>& lines) const;
  std::string hint_for(const std::string& path) const;

  Json root_;
  std::string file_;
  std::string open_word_;
  std::set<std::string, std::less<>> asked_;
  std::vector<std::string> left_open_;
};

}  // namespace meshplan::planner
