// Where a rank's weights and optimizer state come from: a checkpoint of any plan, or a Hugging Face
// model.
#pragma once

#include <string>

#include "program/zero/zero.hpp"
#include "runtime/weights/tensor_box.hpp"

namespace meshplan::kernels {
class Backend;
}

namespace meshplan::runtime {

class Arena;

/// Reads any part of any global parameter.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  /// States beside weights and moments, which are there or not.
  virtual bool has(const std::string& /*state*/, const std::string& /*parameter*/) const {
    return false;
  }
  /// A parameter that the source lacks and that begins as in a new run.
  virtual bool begins_anew(const std::string& /*parameter*/) const { return false; }
  /// Fills all of `target`, whose box is in the global parameter.
  /// @param state  as in state_regions
  /// @throws ConfigError naming the place if it is not there or damaged
  virtual void read(const std::string& state, const std::string& parameter,
                    const TensorTarget& target) = 0;
  /// Which values of the parameter are not finite when they are rounded to `dtype`, by file,
  /// tensor, number and place of the first; empty if all are, or the source has no files. Reads all
  /// of it.
  virtual std::string not_finite(const std::string& /*state*/, const std::string& /*parameter*/,
                                 DType /*dtype*/) {
    return "";
  }
  /// This rank has read all that it needs. Collective where ranks read from each other: returns
  /// when that holds for all. Called once, also if a read has failed.
  virtual void finish() {}
};

enum class LoadedState { WeightsOnly, All };

/// Fills a rank's weights, and with All the optimizer's state; padding becomes zero. Moments that
/// are not loaded stay as they are. What compression lost under another number of replicas is given
/// to the ranks that are there now, so that its sum over them is what it was: replica r of n gets
/// that of replicas r, r + n, ...; what was lost of sums goes to replica 0 where none are kept.
/// @throws ConfigError for values that are not finite where they come to lie, naming the first
void load_parameters(const program::Program& program, const program::Coordinates& place,
                     const program::ShardPlace& shard, ParameterSource& source, LoadedState which,
                     kernels::Backend& backend, const Arena& arena);

}  // namespace meshplan::runtime
