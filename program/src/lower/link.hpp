#pragma once

#include "program/program.hpp"

namespace meshplan::program {

/// Derives OperationInstance::waits from who reads and writes which bytes; lower() has done it.
/// Needed again only after a program's operations or instances were edited.
void link(Program& program);

}  // namespace meshplan::program
