// Job files around another target's launch script.
#pragma once

#include <vector>

#include "planner/formats/formats.hpp"

namespace meshplan::planner {

std::vector<ExportedFile> write_slurm(const ExportRequest& request);
std::vector<ExportedFile> write_kubernetes(const ExportRequest& request);

}  // namespace meshplan::planner
