#pragma once

#include <memory>

#include "comm/channel.hpp"

namespace meshplan::runtime {

/// All ranks of MPI_COMM_WORLD. Called by all of them at once.
std::unique_ptr<Channel> make_mpi_channel();

}  // namespace meshplan::runtime
