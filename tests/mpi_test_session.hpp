#pragma once

#include "runtime/mpi_session.hpp"

namespace meshplan::test {

/// The session that tests/mpi_main.cpp opened before the tests started.
const runtime::MpiSession& mpi_session();

}  // namespace meshplan::test
