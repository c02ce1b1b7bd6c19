// What launch scripts and READMEs of several formats have in common.
#pragma once

#include <string>
#include <string_view>

#include "planner/formats/formats.hpp"

namespace meshplan::planner {

/// Steps of an exported run: a plan has none but those of its learning rate.
int steps_of_run(const program::Plan& plan);

/// "#!/usr/bin/env bash", what it does, how it is called, and $here, the folder of the script.
std::string script_head(std::string_view what, std::string_view usage);

/// "exec torchrun ..." up to the program, the last line continued: as many processes and nodes as
/// the plan has, which meet at MASTER_ADDR.
std::string torchrun_text(const ExportRequest& request);

/// The part of a README about starting it. @param notes  whole lines
std::string starting_text(const ExportRequest& request, std::string_view script,
                          std::string_view notes);

}  // namespace meshplan::planner
