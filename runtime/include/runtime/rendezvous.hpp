// How ranks find each other where no MPI launcher started them: the variables of torchrun, and one
// exchange over TCP with rank 0.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/units.hpp"
#include "runtime/launch.hpp"

namespace meshplan::runtime {

/// What torchrun sets for each process.
struct Rendezvous {
  int rank = 0;         // RANK
  int world_size = 1;   // WORLD_SIZE
  int local_rank = 0;   // LOCAL_RANK: of its machine
  std::string address;  // MASTER_ADDR: of rank 0's machine
  int port = 0;         // MASTER_PORT
  bool operator==(const Rendezvous&) const = default;
};

/// Absent where neither RANK nor WORLD_SIZE is set.
/// @throws ConfigError naming the variable that is missing, no number, or out of range
std::optional<Rendezvous> read_rendezvous(const EnvironmentLookup& environment);

/// Gives every rank what each rank passes as its payload (64 KiB at most), in rank order, once all
/// have come. Rank 0 listens on the port; the others try until it does. Called by all ranks once.
/// @throws ConfigError if a rank was started with another world size, or two with one rank
/// @throws IoError if the port is taken or the address unknown; after `timeout`, with the ranks
/// that have not come
std::vector<std::vector<std::byte>> exchange(const Rendezvous& place,
                                             const std::vector<std::byte>& payload,
                                             Seconds timeout);

}  // namespace meshplan::runtime
