// What the three kinds of accelerate's YAML have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json_fields.hpp"
#include "formats/text/refusals.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::planner::accelerate {

/// Processes, machines and precision, with `distributed_type`.
Json machine_section(const ExportRequest& request, std::string_view distributed_type);

/// accelerate.yaml, run.sh and the README's part. @param notes  whole lines for the README
std::vector<ExportedFile> folder_of(const ExportRequest& request, const Json& configuration,
                                    std::string_view notes);

/// Optimizers and schedules of learning rates that arguments of the Trainer cannot say.
void refuse_optimizer(Refusals& refusals, const program::Plan& plan);

}  // namespace meshplan::planner::accelerate
