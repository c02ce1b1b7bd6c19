#pragma once

#include "guard/guardian.hpp"

namespace meshplan::runtime {

/// In a process forked from a rank: leaves the rank's session, files and signals behind; standard
/// error stays, to speak, and the sockets that `config` names.
void become_guardian(const GuardianConfig& config);

}  // namespace meshplan::runtime
