// What the command says of itself: its help, manual pages, completion of shells and the functions
// of the Python package come from these values, which come from one declaration of each option.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace meshplan::cli {

enum class ValueKind {
  Nothing,  // a flag
  Text,
  Integer,
  Number,
  Integers,  // with commas between them
  Texts,     // the option may be given several times
};

/// An option of a command, or an argument without a name.
struct OptionInfo {
  std::string flag;                // "--model"; of a positional its name
  std::vector<std::string> names;  // "-m", "--model"; empty of a positional
  std::string help;
  std::string group;  // title under which it is listed
  ValueKind value = ValueKind::Nothing;
  std::string value_name;     // "INT", "1f1b|gpipe"
  std::string default_value;  // empty: help says what happens without
  bool is_positional = false;
  std::vector<std::string> choices;      // empty: any value
  std::optional<double> most = {};       // of a number
  std::vector<std::string> suggestions;  // values among others
  bool takes_file = false;               // a file or folder is a value, too
  bool takes_json = false;               // and so is the JSON of such a file
  bool negates = false;                  // the option before: "--no-sp"
  bool reaches_ranks = true;

  bool takes_value() const { return value != ValueKind::Nothing; }
};

struct CommandInfo {
  std::string name;
  std::string summary;
  std::vector<OptionInfo> options;  // all but --help
  std::string examples;             // indented commands, and lines of what else is worth saying
};

struct ProgramInfo {
  std::string name;
  std::string version;
  std::string date;  // of the version
  std::string summary;
  std::string first_steps;  // as CommandInfo::examples
  std::vector<CommandInfo> commands;
};

}  // namespace meshplan::cli
