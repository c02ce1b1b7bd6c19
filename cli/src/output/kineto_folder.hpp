// A trace as PyTorch's profiler writes one, a file a rank.
#pragma once

#include <string>

#include "program/trace/trace.hpp"

namespace meshplan::cli {

constexpr const char* kKinetoHelp =
    "write it as PyTorch's profiler does, a file a rank, into this new folder "
    "(HolisticTraceAnalysis)";

/// rank-0.json.gz, rank-1.json.gz, ... @throws as write_folder
void write_kineto_folder(const std::string& folder, const program::Trace& trace);

}  // namespace meshplan::cli
