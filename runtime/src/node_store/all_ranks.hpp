// What all ranks of a job do together.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// Collective: the texts of all ranks, by rank, on each of them.
std::vector<std::string> gathered_texts(Communicator& world, const std::string& own);

/// Collective: a group of all ranks, whose messages and collectives meet no other ones.
std::unique_ptr<Communicator> group_of_all(Communicator& world, std::string_view name);

}  // namespace meshplan::runtime
