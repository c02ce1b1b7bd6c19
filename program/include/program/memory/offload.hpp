// Optimizer state and owned weights in host memory (ZeRO-Offload, Ren et al. 2021, moves it there
// with the update; here the device updates). A step's end goes over the parameters piece by piece:
// the piece's state comes to one of two slots of Region::OptimizerStaging, is updated there, and
// goes back, while the next piece comes and the one before goes. docs/data_parallel.md
#pragma once

#include <cstdint>
#include <vector>

#include "program/memory/address.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// One in use, one on its way.
constexpr int kStagingSlots = 2;

/// What an update works on that lies on the host, in the order of its arrays in a slot: flat over
/// parameters.
std::vector<Region> offloaded_regions(const Plan& plan);
/// Bytes of it, of one parameter.
std::int64_t offloaded_bytes_per_element(const Plan& plan);

/// Elements of one array of a slot: the most that a rank updates at once. Without ZeRO a piece
/// holds as many as a bucket does (plan.bucket_bytes); with it, what a rank owns of a bucket.
std::int64_t staging_elements(const Program& program);
/// Bytes of one slot.
std::int64_t staging_bytes(const Program& program);

/// The array of `region` in the slot of an instance's piece.
Address staged_address(const Program& program, const OperationInstance& instance, Region region);
/// All arrays of the slot.
Address staging_slot(const Program& program, const OperationInstance& instance);

/// Cuts the run of an update so that no piece is larger than a slot.
std::vector<FlatRange> pieces_of(const Program& program, FlatRange run);

/// Where Region::ResidentWeights has a range of a bucket that every rank holds whole.
Address resident_address(const Program& program, const Bucket& bucket, FlatRange range);
/// Elements of that region.
std::int64_t resident_elements(const Program& program);

/// Fetches what the first updates of a step work on, into free slots.
void append_first_fetches(Program& program, const std::vector<Operation>& updates);
/// The updates in turn, each followed by the copy of its state to the host and the fetch of the
/// state that fills the slot next.
void append_offloaded_updates(Program& program, std::vector<Operation> updates);

}  // namespace meshplan::program
