// What readers of several formats do alike.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "formats/text/settings.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::planner {

/// The text of the file that was named. @throws ConfigError if it is not among the files
const std::string& main_text(const ImportRequest& request);

/// A file among those of the request whose name ends with the last part of `path`; null if there is
/// none.
const std::string* sibling(const ImportRequest& request, std::string_view path);

/// The text of a file that the main one names: as it stands, beside the main one, or from one of
/// the folders above it, as programs name files from where they are started; null if there is none.
std::optional<std::string> named_file(const ImportRequest& request, const std::string& path);

/// The model given beside the files. @throws ConfigError that says what needs it
const models::ModelSpec& given_model(const ImportRequest& request, std::string_view format);

/// Takes the given model in place of the one that the files describe, and lists in what they
/// differ.
void prefer_given_model(const ImportRequest& request, ImportedPlan& imported);

/// @throws ConfigError if the degrees need another number of GPUs than was given
/// @param where  settings of the degrees, for the message
void check_ranks(const ImportRequest& request, const program::Plan& plan, std::string_view where);

/// Moves what nobody asked for to `ignored`.
void list_ignored(const Settings& settings, ImportedPlan& imported);

/// Is the name's last part one of these endings?
bool has_ending(std::string_view name, std::initializer_list<std::string_view> endings);

/// Does a line of a YAML document begin with the key?
bool has_top_key(std::string_view text, std::string_view key);

}  // namespace meshplan::planner
