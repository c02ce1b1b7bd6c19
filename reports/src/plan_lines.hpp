// Lines that reports of one plan share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "program/plan/plan.hpp"
#include "reports/software_report.hpp"
#include "reports/table.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/memory_need.hpp"
#include "sim/engine/step_prediction.hpp"

namespace meshplan::reports {

constexpr double kTera = 1e12;  // of FLOP/s

/// ", 2 of 18 sequences empty" of a plan that takes the batch unevenly; else empty.
std::string empty_sequences_words(const program::Plan& plan);

/// Model, cluster, step and plan, a line each.
std::string plan_header(const program::Plan& plan, const sim::Cluster& cluster);

/// That another training stack runs the plan.
std::string software_line(const program::Stack& stack);
/// The settings that it states, a line; empty: none.
std::string settings_line(const program::Stack& stack);

/// Releases whose verdict on memory is another, a line; empty: none.
std::string other_releases_line(const std::vector<std::string>& releases);

/// What the planner keeps free for what nobody plans: "keeps the reserve of 4 %".
/// @param reserve  part of the device
std::string reserve_verdict(double peak, double usable, double reserve);

/// Seconds of a step by category, those without any left out, and their shares.
Table times_table(const sim::StepPrediction& step);

/// "fits: 60 GiB of 79 GiB on stage 0; keeps the reserve of 4 %", a line.
/// @param beside  what is held elsewhere, from a comma on; empty: nothing
std::string memory_verdict(const sim::MemoryNeed& need, int stage, const program::Stack& stack,
                           double reserve, const std::string& beside = "");

/// What users of the stack read off their screens, a line.
/// What the stack of a report does by itself; empty: nothing that matters is open.
std::string assumed_line(const SoftwareReport& report);

std::string shown_memory_line(const sim::ShownMemory& shown);

/// The same, the verdict and its margin, for programs.
nlohmann::ordered_json verdict_json(const sim::MemoryNeed& need, const program::Stack& stack,
                                    double reserve);

}  // namespace meshplan::reports
