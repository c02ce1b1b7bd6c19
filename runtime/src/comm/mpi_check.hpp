#pragma once

#include <mpi.h>

#include <optional>
#include <string>

#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// @throws CommError with MPI's own text unless `status` is MPI_SUCCESS
inline void check_mpi(int status, const std::string& operation, const std::string& group,
                      std::optional<int> peer = std::nullopt) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "unknown MPI error";
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw CommError(operation, group, peer, text);
}

}  // namespace meshplan::runtime
