// Runs exported scripts among programs that only write down how they were started.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "planner/formats/formats.hpp"

namespace meshplan::planner::format_tests {

/// What a script of an exported folder does.
struct Recorded {
  std::string starts;  // a line a program: its name and arguments, each followed by U+001F
  int exit_code = 0;
  bool operator==(const Recorded&) const = default;
};

class ScriptRecorder {
 public:
  ScriptRecorder();
  ScriptRecorder(const ScriptRecorder&) = delete;
  ScriptRecorder& operator=(const ScriptRecorder&) = delete;
  ~ScriptRecorder();

  /// Runs `script` of the folder with bash, whose PATH holds nothing but recorders (and dirname and
  /// head, which the scripts need), in the folder itself. A folder with the same scripts is not run
  /// again.
  Recorded run(const std::vector<ExportedFile>& files, const std::string& script);

  /// Files that scripts have made beside those that were exported.
  std::vector<std::string> planted() const;

 private:
  std::filesystem::path root_;
  std::map<std::string, Recorded> known_;  // by the text of the scripts
};

}  // namespace meshplan::planner::format_tests
