// The plan that a command is given, by a file or by flags, and the cluster that it runs on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "options/plan_options.hpp"
#include "program/checks/check.hpp"
#include "program/plan/plan.hpp"
#include "sim/anchors/adjustment.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::cli {

struct PlanOnCluster {
  program::Plan plan;
  sim::Cluster cluster;
  std::vector<std::string> assumptions;  // filled in for flags
  std::vector<std::string> changes;      // that --set made
  std::vector<std::string> notes;        // what such a configuration left open, and what is ignored
  PlanInput source;                      // what its file says besides, for stack_refusals()

  std::shared_ptr<const sim::Adjustment> adjustment = nullptr;  // by measured runs

  bool of_own_software() const { return plan.stack.is_own(); }
};

/// Reads a plan's file, its JSON or another stack's configuration, with what --set, --cluster,
/// --freeze and --expert-imbalance change of it.
/// @throws ConfigError for what is no plan, breaks a rule of ours or of the software, or has no
/// cluster with as many ranks
PlanOnCluster plan_of_file(const std::string& file_or_json, const PlanOptions& options);

/// The one plan that flags describe (single_plan), on exactly the ranks that its degrees ask for
/// unless --gpus says another number.
PlanOnCluster plan_of_flags(PlanOptions options);

/// Another plan, for the same work on the same ranks.
/// @throws ConfigError if it is not
program::Plan plan_beside(const PlanOnCluster& input, const std::string& file_or_json,
                          const std::string& name_of_input);

/// The lines of a report that say what was filled in, and what --set changed.
std::string origin_text(const PlanOnCluster& input);
std::string changes_text(const std::vector<std::string>& changes);

}  // namespace meshplan::cli
