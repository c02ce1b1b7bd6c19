// What saves are predicted to cost a run, for the lines at its start and beside what it measures.
#pragma once

#include <cstdint>
#include <optional>

#include "program/plan/plan.hpp"
#include "program/trace/saving_report.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::cli {

struct PredictedSaves {
  std::int64_t bytes = 0;  // of the rank that saves most
  // Absent without a cluster.
  std::optional<program::PredictedSave> disk, memory;
};

/// Lowers the plan. @param cluster  absent: only bytes are known
PredictedSaves predicted_saves(const program::Plan& plan,
                               const std::optional<sim::Cluster>& cluster);

/// Lays the prediction beside what was measured.
void add(const PredictedSaves& predicted, program::SavingReport& measured);

}  // namespace meshplan::cli
