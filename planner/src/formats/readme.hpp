// The README.md of an exported folder.
#pragma once

#include <string>
#include <string_view>

#include "planner/formats/formats.hpp"

namespace meshplan::planner {

/// "llama3-70b: tp8 sp pp4 dp4 on 16 nodes of 8 H100-SXM5-80GB". Holds names: goes through
/// core/quoting.hpp.
std::string title_of(const ExportRequest& request);

/// Why this plan, what was predicted, and what of it the target leaves to others.
/// @param starting   the format's own part about starting it
/// @param predicted  ExportedFolder::predicted
std::string readme_of(const Format& format, const ExportRequest& request, std::string_view starting,
                      const std::string& predicted);

}  // namespace meshplan::planner
