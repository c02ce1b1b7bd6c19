#pragma once

#include "guard/guardian.hpp"

namespace meshplan::runtime {

constexpr const char* kNameOfGuardian = "meshplan-guard";  // the kernel keeps 15 bytes
constexpr const char* kNameOfSpare = "meshplan-spare";

/// In a process forked from a rank, or from a guardian: leaves its session, files and signals
/// behind; standard error stays, to speak, and the sockets that `config` names.
void become_guardian(const GuardianConfig& config, const char* name);

}  // namespace meshplan::runtime
