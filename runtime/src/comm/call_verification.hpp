// verify_calls: the ranks compare what they passed before anything runs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/host_operation.hpp"

namespace meshplan::runtime {

/// What one rank passed to one call, as numbers that can be sent.
struct CallSignature {
  enum Field { Operation, Type, Count, Reduction, Root, kNumFields };
  std::array<std::int64_t, kNumFields> fields{};
  // all_to_all_v only: one per rank of the group
  std::vector<std::int64_t> send_counts;
  std::vector<std::int64_t> recv_counts;

  /// "all_reduce, fp32 x 128, sum"
  std::string describe() const;
};

/// A collective that exchanges signatures with the whole group, then runs.
HostOperationPtr verified_collective(HostOperationPtr operation, CallSignature mine,
                                     int sequence_number);

/// A transfer that exchanges (direction, dtype, count) with its peer, then runs. Sender and
/// receiver must both have called before either goes on.
HostOperationPtr verified_transfer(HostOperationPtr operation, std::span<const Transfer> transfers);

}  // namespace meshplan::runtime
