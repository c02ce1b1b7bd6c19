#pragma once

#include <string>

#include "runtime/comm/session.hpp"

namespace meshplan::test {

/// The session that tests/mpi_main.cpp opened before the tests started: MPI's, or TCP's where
/// torchrun's variables are set.
const runtime::Session& mpi_session();

/// What this machine lacks for the tests of the program, asked before a session is opened; empty =
/// nothing. A program without such needs leaves it null.
inline std::string (*what_is_missing)() = nullptr;

}  // namespace meshplan::test
