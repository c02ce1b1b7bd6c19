// What a communication's time is spent on: waiting for its last member, moving, and moving slower
// because something is computed meanwhile. docs/compare/README.md defines each.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "program/trace/trace.hpp"

namespace meshplan::sim {

/// Seconds; each may be hidden behind computation or not.
struct CommunicationSplit {
  double waiting_s = 0;   // until the last member had come
  double transfer_s = 0;  // what it takes alone
  double slowdown_s = 0;  // beyond that, while the rank computes
  double total() const { return waiting_s + transfer_s + slowdown_s; }
};

/// Of one rank, by process group ("tp", "dp-cp", "pp"), mean over the traced steps. Where several
/// communications of a group are in progress at once the time counts once, so no group takes longer
/// than the step.
struct RankCommunication {
  int rank = 0;
  std::map<std::string, CommunicationSplit> groups;
};

/// One entry per rank that communicates, ascending. What a communication takes alone is what the
/// quicker of its like (name, group, bytes) take while nothing is computed beside them; where none
/// runs so, what the quicker of `prediction` take, else of all.
/// @param prediction  of the same plan; null: there is none
std::vector<RankCommunication> split_communication(const program::Trace& trace,
                                                   const program::Trace* prediction = nullptr);

/// Mean over ranks.
std::map<std::string, CommunicationSplit> mean_of(const std::vector<RankCommunication>& ranks);

}  // namespace meshplan::sim
