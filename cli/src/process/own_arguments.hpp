#pragma once

#include <string>
#include <vector>

namespace meshplan::cli {

/// The words by which this process was called, the program first.
std::vector<std::string> own_arguments();

}  // namespace meshplan::cli
