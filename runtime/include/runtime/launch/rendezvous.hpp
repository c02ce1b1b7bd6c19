// Where a rank stands that no MPI launcher started: the variables of torchrun.
#pragma once

#include <optional>
#include <string>

#include "runtime/launch/launch.hpp"

namespace meshplan::runtime {

/// What torchrun sets for each process, and the job's secret.
struct Rendezvous {
  int rank = 0;              // RANK
  int world_size = 1;        // WORLD_SIZE
  int local_rank = 0;        // LOCAL_RANK: of its machine
  std::string address;       // MASTER_ADDR: of rank 0's machine, where rank 0 listens
  int port = 0;              // MASTER_PORT
  int local_world_size = 0;  // LOCAL_WORLD_SIZE: ranks of this machine; 0 where it is not set
  std::string secret;        // MESHPLAN_JOB_SECRET; empty where it is not set. Never printed
  bool operator==(const Rendezvous&) const = default;
};

/// Absent where neither RANK nor WORLD_SIZE is set.
/// @throws ConfigError naming the variable that is missing, no number, out of range, or (of the
/// secret, without its value) too short
std::optional<Rendezvous> read_rendezvous(const EnvironmentLookup& environment);

/// Who may join the ranks' meeting (docs/cuda.md#meeting).
enum class Admission {
  Secret,    // who has MESHPLAN_JOB_SECRET
  SameUser,  // all ranks are of this machine: its kernel says who is of this user
  Anyone     // who reaches the port: there is no secret, and ranks come from several machines
};
/// @throws IoError if MASTER_ADDR is unknown
Admission admission_of(const Rendezvous& place);
/// What to tell the user where Admission is Anyone; rank 0 says it for all.
std::optional<std::string> admission_warning(const Rendezvous& place);

}  // namespace meshplan::runtime
