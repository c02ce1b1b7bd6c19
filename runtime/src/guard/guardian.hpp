// The process that watches the ranks of one machine. A second one (spare.hpp) watches it.
#pragma once

#include <string>
#include <vector>

#include "core/units.hpp"
#include "meet/secret.hpp"
#include "runtime/guard/status_board.hpp"

namespace meshplan::runtime {

/// How the guardians of a job find one another.
struct GuardianNetwork {
  int num_machines = 1;
  int machine = 0;    // this one; 0 is the machine of rank 0, which listens
  int listener = -1;  // socket of machine 0, not blocking; -1 elsewhere
  int port = 0;
  Hash key{};                          // what guardians prove to each other
  std::vector<std::string> addresses;  // of machine 0, in the order in which to try them
};

/// A connection of a local rank, which closes when its process ends.
struct Lifeline {
  int pid = 0;
  int socket = -1;
};

struct GuardPost;

struct GuardianConfig {
  GuardPost* post = nullptr;    // in memory that this machine's ranks share
  StatusSlot* slots = nullptr;  // likewise
  int num_slots = 0;
  int lifeline_listener =
      -1;  // Unix socket with one connection of every local rank, to be accepted
  std::vector<Lifeline> lifelines;
  std::vector<std::string> host_of_rank;  // of the whole job
  std::vector<int> machine_of_rank;
  Seconds hang_timeout;
  std::string report_socket;  // see WatchdogOptions
  GuardianNetwork network;
};

/// Starts the guardian, detached from this process and its launcher. The slots must hold live pids.
/// @throws IoError
void start_guardian(const GuardianConfig& config);

/// In a process that has become one (become_guardian.hpp): guards until the ranks have ended.
[[noreturn]] void serve_as_guardian(GuardianConfig config);

}  // namespace meshplan::runtime
