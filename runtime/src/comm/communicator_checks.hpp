// What a caller can get wrong by itself: checked before anything runs, alike in all back ends that
// keep device memory.
#pragma once

#include <string_view>

#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime::checks {

/// All throw InvariantError with the operation, the group and the rule.
void all_reduce(const Communicator& comm, const ConstBuffer& send, const ConstBuffer& recv,
                ReduceOp op);
void reduce_scatter(const Communicator& comm, const ConstBuffer& send, const ConstBuffer& recv,
                    ReduceOp op);
void all_gather(const Communicator& comm, const ConstBuffer& send, const ConstBuffer& recv);
void all_to_all(const Communicator& comm, const ConstBuffer& send, const ConstBuffer& recv);
void all_to_all_v(const Communicator& comm, const ConstBuffer& send,
                  std::span<const std::int64_t> send_counts, const ConstBuffer& recv,
                  std::span<const std::int64_t> recv_counts);
void broadcast(const Communicator& comm, const ConstBuffer& buffer, int root);
void transfers(const Communicator& comm, std::string_view operation,
               std::span<const Transfer> transfers);

/// "tp of ranks 0 1". @throws ConfigError for repeated or unknown ranks
std::string group_label(const Communicator& parent, std::span<const int> ranks,
                        std::string_view name);

}  // namespace meshplan::runtime::checks
