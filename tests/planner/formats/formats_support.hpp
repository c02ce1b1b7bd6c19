// Exporting and importing in tests.
#pragma once

#include <optional>
#include <string>

#include "planner/formats/formats.hpp"

namespace meshplan::planner::format_tests {

/// A plan of a preset on so many data-parallel ranks, everything else at its default: bf16, 8
/// sequences of 4096 tokens a rank, one a micro-batch.
program::Plan plan_of(const std::string& preset, int dp = 8);

/// The files of an exported folder as a request to read them, with the plan's model beside them.
ImportRequest request_of(const std::vector<ExportedFile>& files, const std::string& main,
                         const program::Plan& plan);

/// A request of one file. @param preset  model given beside it; "" = none
ImportRequest request_of(const std::string& main, const std::string& text,
                         const std::string& preset = "", std::optional<int> ranks = {});

/// The plan in one of several forms that mean the same: the division of layers written out, what
/// has no effect at its default, and without what only meshplan's own runtime reads.
program::Plan canonical(program::Plan plan);

std::string text_of(const std::vector<ExportedFile>& files, const std::string& name);

/// The message of the ConfigError that reading it throws; "" if it throws none.
std::string read_error(const std::string& format, const ImportRequest& request);
std::string write_error(const std::string& format, const program::Plan& plan);

ImportedPlan read_as(const std::string& format, const ImportRequest& request);

/// The text with one part of it replaced, which must be there.
std::string replaced(std::string text, const std::string& from, const std::string& to);

/// Does one of the lines contain the text?
bool mentions(const std::vector<std::string>& lines, const std::string& text);

}  // namespace meshplan::planner::format_tests
