#include "models/module.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace meshplan::models {

std::vector<Module> ModuleSet::list() const {
  std::vector<Module> modules;
  for (const auto& [module, name] : EnumNames<Module>::value)
    if (contains(module)) modules.push_back(module);
  return modules;
}

std::string to_string(ModuleSet modules, char separator) {
  std::string text;
  for (const Module module : modules.list()) {
    if (!text.empty()) text += separator;
    text += name_of(module);
  }
  return text;
}

ModuleSet parse_modules(std::string_view text, char separator) {
  ModuleSet modules;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    const auto module = from_name<Module>(name);
    if (!module) throw ConfigError(unknown_name_message("module", name, all_names<Module>()));
    modules.add(*module);
    begin = end + 1;
  }
  return modules;
}

}  // namespace meshplan::models
