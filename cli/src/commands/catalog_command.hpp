// Commands that list presets or show one of them: models, clusters.
#pragma once

#include <functional>
#include <string>

#include "options/command_line.hpp"

namespace meshplan::cli {

struct CatalogCommand {
  std::string name;
  std::string summary;
  std::string item;  // of the positional argument
  std::string item_help;
  std::vector<std::string> items;  // presets
  std::string json_help = "print the result for programs";
  std::string schema_help;
  std::string examples;
  std::function<void(Command&)> add_options = [](Command&) {};
  std::function<std::string()> schema;
  std::function<std::string(const std::string& item, bool json)> one;
  std::function<std::string(bool json)> all;
};

void add_catalog_command(CommandLine& line, const CatalogCommand& command);

}  // namespace meshplan::cli
