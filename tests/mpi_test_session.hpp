#pragma once

#include "runtime/comm/session.hpp"

namespace meshplan::test {

/// The session that tests/mpi_main.cpp opened before the tests started: MPI's, or TCP's where
/// torchrun's variables are set.
const runtime::Session& mpi_session();

}  // namespace meshplan::test
