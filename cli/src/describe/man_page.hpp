// Manual pages in roff's man macros (man(7)), made of what the command says of itself.
#pragma once

#include <string>
#include <vector>

#include "options/description.hpp"

namespace meshplan::cli {

struct ManPage {
  std::string command;  // "plan"; of the first page the program
  std::string name;     // "meshplan-plan"
  std::string text;
  std::string file() const { return name + ".1"; }
};

/// meshplan(1), and a page for each subcommand.
std::vector<ManPage> man_pages(const ProgramInfo& program);

}  // namespace meshplan::cli
