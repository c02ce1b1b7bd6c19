// What one layer of a program asks of a GPU for one micro-batch, forward and backward: the kernels
// that kernels/cuda launches and the bytes that they move, beside the fewest possible. Counted from
// the lowered program, without a GPU. docs/cuda.md defines the minimum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.hpp"

namespace meshplan::bench {

/// Who computes attention.
enum class AttentionKernels { Cudnn, Own };

struct OperationTraffic {
  std::string name;
  bool library = false;  // a matrix product or attention; else a pass over memory
  int launches = 0;
  std::int64_t bytes = 0;        // operands once, and what goes through scratch
  std::int64_t least_bytes = 0;  // the part that every implementation must move
};

struct LayerTraffic {
  std::int64_t tokens = 0;  // of the micro-batch
  std::vector<OperationTraffic> operations;

  int launches() const;
  /// Bytes over the least; of passes over memory alone, or with products and attention.
  double ratio_of_passes() const;
  double ratio() const;
};

/// Traffic of the first layer in the second micro-batch, which adds its weight gradients to the
/// first one's.
/// @param program  of a stage with a layer and two micro-batches
/// @throws ConfigError naming an operation whose launches are not known here
LayerTraffic layer_traffic(const program::Program& program, AttentionKernels attention);

/// Kernels that kernels/cuda launches for an instance of a ComputeOp; a library's call counts one.
/// @throws ConfigError as above
int kernel_launches(const program::Program& program, const program::OperationInstance& instance,
                    AttentionKernels attention);

}  // namespace meshplan::bench
