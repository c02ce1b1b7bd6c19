// Resolves a value of an operation instance to bytes of a region: the one place that knows how
// layers hand activations and gradients to each other.
#pragma once

#include <cstdint>

#include "program/program.hpp"
#include "program/zero/zero.hpp"

namespace meshplan::program {

/// `bytes` from `offset` in `slot` of `region`.
struct Address {
  Region region = Region::Transient;
  int slot = 0;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  bool operator==(const Address&) const = default;
};

/// Where an operand of a block's operation lies.
Address address_of(const Program& program, const OperationInstance& instance, ValueId value);

/// What a peer operation sends or receives.
Address peer_address(const Program& program, const OperationInstance& instance);

/// A flat range of a parameter region (elements) or of the scalars.
Address flat_address(const Program& program, Region region, FlatRange range);

/// `count` scalars from `first` on.
Address scalar_address(const Program& program, Scalar first, std::int64_t count = 1);

/// The sums of token losses among the scalars: the model's and, before it, the prediction modules'
/// where there are any.
FlatRange loss_scalars(const Plan& plan);

/// Where a collective on a flat range works: on all of it, and on the part that the rank owns. A
/// gather of a unit's weights reads its part where the rank holds it; an all-to-all goes from `all`
/// to `part`.
struct FlatPlaces {
  Address all;
  Address part;
};
FlatPlaces flat_places(const Program& program, const OperationInstance& instance,
                       const FlatCollectiveOp& flat, const ShardPlace& place);

/// Bytes of one element of a region that is flat over parameters or scalars.
std::int64_t element_bytes(const Program& program, Region region);

/// Everything that an instance reads and writes; a value that is updated in place is in both.
struct Footprint {
  std::vector<Address> reads;
  std::vector<Address> writes;
};
Footprint footprint(const Program& program, const OperationInstance& instance);
/// @param result  whose memory is used again
void footprint(const Program& program, const OperationInstance& instance, Footprint& result);

}  // namespace meshplan::program
