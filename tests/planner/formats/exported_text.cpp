#include "planner/formats/exported_text.hpp"

#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "core/printable.hpp"
#include "formats/text/documents.hpp"
#include "python/tokens.hpp"
#include "shell/script.hpp"
#include "support/hostile_strings.hpp"

namespace meshplan::planner::format_tests {
namespace {

/// A line, a cell or an entry that is a command, not text behind something else.
std::string planted_line(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t\r\v\f");
    const std::string rest = begin == std::string::npos ? "" : line.substr(begin);
    if (rest.starts_with(std::string("touch ") + test::kPlanted) ||
        rest.starts_with("import os; os.system"))
      return line;
  }
  return "";
}

void read_python(const std::string& text, const std::string& file) {
  for (const python::LogicalLine& line : python::logical_lines(text, file))
    python::tokens_of(line, file);
}

void read_shell(const std::string& text, const std::string& file) {
  const shell::Script script = shell::read_script({{file, text}}, file, {});
  for (const shell::ScriptCommand& command : script.commands)
    if (!command.words.empty() && command.words.front().text == "touch")
      throw ConfigError("starts touch");
}

void read_as_target(const ExportedFile& file) {
  if (file.name.ends_with(".json")) {
    parse_json(file.text, file.name);
  } else if (file.name.ends_with(".yaml")) {
    for (const std::string& document : yaml_documents(file.text)) parse_yaml(document, file.name);
  } else if (file.name.ends_with(".py")) {
    read_python(file.text, file.name);
  } else if (file.executable || file.name.ends_with(".sbatch")) {
    read_shell(file.text, file.name);
  } else if (file.name.ends_with(".md") && file.text.find("<script") != std::string::npos) {
    throw ConfigError("begins a script of HTML");
  }
}

}  // namespace

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> yaml_documents(const std::string& text) {
  constexpr std::string_view kRule = "\n---\n";
  std::vector<std::string> documents;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + kRule.size()) {
    end = text.find(kRule, begin);
    documents.push_back(text.substr(begin, end == std::string::npos ? end : end + 1 - begin));
  }
  return documents;
}

std::string exported_fault(const ExportedFile& file) {
  if (printable(file.text) != file.text)
    return fmt::format("{}: holds what a terminal obeys, or no UTF-8", file.name);
  const std::string planted = planted_line(file.text);
  if (!planted.empty()) return fmt::format("{}: has the line '{}'", file.name, planted);
  try {
    read_as_target(file);
  } catch (const std::exception& error) {
    return fmt::format("{}: {}", file.name, error.what());
  }
  return "";
}

}  // namespace meshplan::planner::format_tests
