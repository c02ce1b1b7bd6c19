// Small plans, machines and tables that readers' seeds are made of.
#pragma once

#include <string>

#include "program/plan/plan.hpp"
#include "program/trace/trace.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/fit/validation.hpp"

namespace meshplan::fuzz {

/// tiny-llama, sequences of 64; dp fills up to the ranks.
program::Plan sample_plan(program::ParallelConfig parallel = {}, std::int64_t global_batch = 8);
/// Without the hashes of model and cluster, which would refuse every change inside these.
std::string without_hashes(const std::string& plan_or_trace);
/// A CPU host with some measured operators and collectives.
sim::Cluster sample_cluster();
/// Trace of sample_plan({.dp = 2}) on sample_cluster().
program::Trace sample_trace(bool measured);
/// A table of published runs: a header and rows that nobody measured.
std::string sample_table();
/// Predictions of sample_table().
sim::PreparedTable prepared(const std::string& table);

}  // namespace meshplan::fuzz
