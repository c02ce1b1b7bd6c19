#include "formats/text/imported.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/quoting.hpp"
#include "models/spec_difference.hpp"

namespace meshplan::planner {
namespace {

std::string_view last_part(std::string_view path) {
  return path.substr(path.find_last_of("/\\") + 1);  // npos + 1 = 0
}

}  // namespace

const std::string& main_text(const ImportRequest& request) {
  const auto found = request.files.find(request.main);
  if (found == request.files.end())
    throw ConfigError(fmt::format("{}: is not among the files that were read", request.main));
  check_configuration_text(found->second, request.main);
  return found->second;
}

const std::string* sibling(const ImportRequest& request, std::string_view path) {
  const std::string_view wanted = last_part(path);
  for (const auto& [name, text] : request.files)
    if (last_part(name) == wanted) return &text;
  return nullptr;
}

std::optional<std::string> named_file(const ImportRequest& request, const std::string& path) {
  constexpr int kMostFoldersUp = 8;
  const auto text_of = [&](const std::string& name) -> std::optional<std::string> {
    if (const auto found = request.files.find(name); found != request.files.end())
      return found->second;
    return request.open ? request.open(name) : std::nullopt;
  };
  if (path.empty()) return std::nullopt;
  if (path.starts_with('/')) return text_of(path);
  std::string folder = request.main.substr(0, request.main.find_last_of('/') + 1);  // npos + 1 = 0
  for (int up = 0; up < kMostFoldersUp; ++up) {
    if (auto text = text_of(folder + path)) return text;
    const bool ends_in_name = folder.size() > 1 && !folder.ends_with("../") && folder != "./";
    if (ends_in_name)
      folder.erase(folder.find_last_of('/', folder.size() - 2) + 1);
    else if (folder == "/")
      break;
    else
      folder = "../" + (folder == "./" ? std::string() : folder);
  }
  const std::string* beside = sibling(request, path);
  return beside == nullptr ? std::nullopt : std::optional(*beside);
}

const models::ModelSpec& given_model(const ImportRequest& request, std::string_view format) {
  if (request.model) return *request.model;
  throw ConfigError(fmt::format(
      "{}: a configuration of {} does not describe the model; give it with --model; for "
      "example: meshplan import {} --model llama3-8b",
      request.main, format, shell_quoted(request.main)));
}

void prefer_given_model(const ImportRequest& request, ImportedPlan& imported) {
  if (!request.model) return;
  const models::ModelSpec described = imported.plan.model;
  imported.plan.model = *request.model;
  for (const models::FieldDifference& field : models::differences(described, *request.model))
    if (field.field != "name")
      imported.assumptions.push_back(
          fmt::format("model.{} = {} (the model given; the file says {})", field.field, field.right,
                      field.left));
}

void check_ranks(const ImportRequest& request, const program::Plan& plan, std::string_view where) {
  const program::ParallelConfig& p = plan.parallel;
  const double product = static_cast<double>(p.tp) * p.cp * p.pp * static_cast<double>(p.dp);
  if (product > static_cast<double>(limits::kRanks))
    throw ConfigError(
        fmt::format("{}: {}: tp({}) * cp({}) * pp({}) * dp({}) = {:.3g} GPUs; at most "
                    "{} are planned",
                    request.main, where, p.tp, p.cp, p.pp, p.dp, product, limits::kRanks));
  if (request.ranks && p.world_size() != *request.ranks)
    throw ConfigError(
        fmt::format("{}: {}: tp({}) * cp({}) * pp({}) * dp({}) = {} GPUs, but there are {}",
                    request.main, where, p.tp, p.cp, p.pp, p.dp, p.world_size(), *request.ranks));
}

void list_ignored(const Settings& settings, ImportedPlan& imported) {
  for (std::string& line : settings.unread()) imported.ignored.push_back(std::move(line));
}

bool has_ending(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view end) { return name.ends_with(end); });
}

bool has_top_key(std::string_view text, std::string_view key) {
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1))
    if ((at == 0 || text[at - 1] == '\n') && text.substr(at + key.size()).starts_with(':'))
      return true;
  return false;
}

}  // namespace meshplan::planner
