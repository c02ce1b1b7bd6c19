#include "shell/script.hpp"

#include "shell/reader.hpp"

namespace meshplan::planner::shell {

Script read_script(const std::map<std::string, std::string>& files, const std::string& main,
                   const std::map<std::string, std::string>& environment) {
  return ScriptReader(files, environment).run(main);
}

}  // namespace meshplan::planner::shell
