// A world that keeps a ledger of all that is communicated on it and on the groups made from it.
#pragma once

#include <memory>

#include "certify/ledger.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// Passes every call on to `inner`, which must outlive the result. What a call is given is read
/// before it starts (it may be in place), what it gives once test() or wait() has said that it is
/// done, both on the caller's thread. Host memory only.
/// @param ledger  gets an entry for the world, and one for each group when it is made
std::unique_ptr<Communicator> make_witnessed_world(Communicator& inner,
                                                   std::shared_ptr<Ledger> ledger);

}  // namespace meshplan::runtime
