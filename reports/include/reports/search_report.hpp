// What `meshplan plan` shows: the ranked plans, why the first one, why not others.
#pragma once

#include <string>
#include <vector>

#include "planner/search/search.hpp"

namespace meshplan::reports {

/// "llama3-70b  70.6 B parameters, 80 layers, hidden 8192, 64 heads (8 kv), vocabulary 128,256"
std::string model_line(const models::ModelSpec& model);
/// "1.2 M of 6.0 M parameters (embedding, layers.0-3)"
std::string frozen_line(const models::ModelSpec& model, const std::vector<std::string>& frozen);
/// "dgx-h100  128 x H100 SXM 80 GB: 16 nodes of 8, nvlink 370.8 GB/s, infiniband-ndr 48 GB/s"
/// What prices of a GPU rest on none of whose operators were timed, anywhere; else empty.
std::string untimed_text(const sim::Cluster& cluster);
std::string cluster_line(const sim::Cluster& cluster);
/// "1,024 sequences of 8,192 tokens (8.4 M tokens a step), bf16, adamw"
std::string workload_line(const program::Workload& workload);

/// The lines above, and one for what was assumed.
std::string request_header(const planner::SearchRequest& request,
                           const std::vector<std::string>& assumptions);

/// @param seconds  that the search took
std::string to_text(const planner::SearchResult& result, double seconds);
std::string to_text(const planner::InfeasibleResult& result, double seconds);

/// The terms of a plan's step, those that know least first.
std::string explain_text(const planner::RankedPlan& ranked);

}  // namespace meshplan::reports
