// Which parts of the model's tensors a rank holds, and where in its flat parameter regions: the
// same answer serves saving, loading under another plan, and weights from elsewhere.
//
// The parts that parameters are cut into, from the plan to the files:
//   program::ShardPiece   an interval of the sharded dimension, local and global
//   program::MatrixPiece  a rectangle of a parameter seen as a matrix, local and global
//   program::HeldRun      an interval of the flat parameters, and where it lies in a region
//   program::BlockRun     an interval of the flat gradients, and its first block when compressed
//   program::SnapshotRun  an interval of the flat parameters, in a region and in the snapshot
//   PlacedBox             a box of a global parameter, and where it lies in the flat regions
//   CheckpointPiece       a box of a global parameter, and where it lies in a checkpoint's files
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/memory/saved_share.hpp"
#include "program/zero/zero.hpp"
#include "runtime/weights/tensor_box.hpp"

namespace meshplan::runtime {

/// A box of a global parameter that lies in a rank's flat regions.
struct PlacedBox {
  int parameter = 0;                  // index into Program::parameters
  TensorBox box;                      // in the global parameter
  std::int64_t offset = 0;            // of its first element, in every flat region
  std::vector<std::int64_t> strides;  // of the local tensor
};

/// What the flat elements of `range` hold on the rank at `place`, in their order. Padding (rows of
/// a padded vocabulary, alignment gaps) belongs to no box.
std::vector<PlacedBox> held_boxes(const program::Program& program,
                                  const program::Coordinates& place, program::FlatRange range);

/// Everything that the rank holds.
std::vector<PlacedBox> held_boxes(const program::Program& program,
                                  const program::Coordinates& place);

using program::compression_error_state;
using program::kSumErrorState;
using program::kWeights;
using program::saved_states;
using program::saver_place;
using program::SaverPlace;
using program::snapshot_runs;
using program::SnapshotRun;
using program::state_regions;
using program::StateRegion;

/// What a rank's region holds of a state.
std::vector<program::HeldRun> held_runs(const program::Program& program, const StateRegion& state,
                                        const program::ShardPlace& shard);

/// What the rank saves of `range`: what it holds, less tied copies and what a lower tp rank (of
/// experts, a lower etp rank) holds too. Over all ranks every element of every parameter is saved
/// once.
std::vector<PlacedBox> saved_boxes(const program::Program& program,
                                   const program::Coordinates& place, program::FlatRange range);

}  // namespace meshplan::runtime
