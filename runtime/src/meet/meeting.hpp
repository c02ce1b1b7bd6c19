// How ranks find each other where no MPI launcher started them: one exchange over TCP with rank 0.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "meet/secret.hpp"
#include "os/tcp_socket.hpp"
#include "runtime/launch/rendezvous.hpp"

namespace meshplan::runtime {

/// What a rank has to say to all others (64 KiB at most), given its own address on the network
/// over which it reached rank 0. May be asked for again.
using PayloadOf = std::function<std::vector<std::byte>(const std::string& address)>;

struct Meeting {
  std::vector<std::vector<std::byte>> payloads;  // one of each rank, in rank order
  Secret secret;                                 // of the job
};

/// Gives every rank what each rank says, once all have come. Rank 0 listens at MASTER_ADDR and
/// MASTER_PORT, and nowhere else; the others try until it does. Called by all ranks once.
///
/// Strangers (who do not know the secret, or where there is none are another user of this machine)
/// can neither end it nor hold it up: admission_of(). What rank 0 has not proved to have said is
/// not believed.
/// @throws ConfigError if a rank was started with another world size or secret, or two with one
/// rank
/// @throws IoError if the port is taken, or the address unknown or not of rank 0's machine; at the
/// deadline, with the ranks that have not come
Meeting meet(const Rendezvous& place, const PayloadOf& payload, const Deadline& deadline);

}  // namespace meshplan::runtime
