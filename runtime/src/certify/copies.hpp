// What several ranks hold must be the same bits on all of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "program/certificate/exact_check.hpp"
#include "train/trainer.hpp"

namespace meshplan::runtime {

/// Compares every element of the model that more than one rank holds, whatever else the ranks hold:
/// replicas over dp and cp, what tp does not shard, key/value heads that several ranks hold, both
/// copies of a tied embedding, experts over their own replicas.
///
/// A rank folds the bits of an element, of all regions and steps, into 32: one of them changed
/// always changes the result. Each rank puts these into the element's place in the unsharded model;
/// the largest and the smallest over the ranks are one all_reduce and must be equal. Where they are
/// not, region by region is compared likewise, which tells element, values and ranks.
class CopyComparison {
 public:
  /// Notes the weights that the first step begins with. @param world  the trainer's ranks
  CopyComparison(Trainer& trainer, Communicator& world);

  /// After a step: notes the gradients and weights that the rank owns, and compares what each rank
  /// reports: loss, gradient norm, losses and loads of routers. Gradients that others own are
  /// unfinished sums. Collective.
  void add_step(const StepOutcome& outcome, const std::string& when);

  /// After the last step, whose name is `when`: compares what was noted, what the optimizer keeps
  /// of what a rank owns (fp32 weights, moments), and what a rank had gathered of others' weights.
  /// ZeRO gathers them when a step begins, so they are those of the step before. Collective.
  /// @returns what this rank has found
  std::vector<program::ExactCheck> result(const std::string& when);

 private:
  /// The rank's flat parameters in some region, by their bits; where it has none, nothing is meant.
  using FlatBits = std::vector<std::int32_t>;
  struct Noted {
    program::Region region;
    std::string when;
    FlatBits flat;
  };

  FlatBits read(program::Region region, const std::vector<program::HeldRun>& runs);
  void note(program::Region region, const std::string& when);
  void compare_figures(const StepOutcome& outcome, const std::string& when);
  void compare_gathered(const std::string& when);
  void compare_noted(const Noted& noted);
  std::vector<std::size_t> differing(program::Region region, const FlatBits& flat);
  bool owns(program::Region region, std::size_t local) const {
    return owned_[local] != 0 && (region == program::Region::Weights || trained_[local] != 0);
  }
  /// Calls `at(element of the model, element of the flat parameters)` for all of the rank's.
  template <class Function>
  void for_each_element(Function at) const;
  /// Index of the parameter of an element of the model.
  std::size_t parameter_of(std::size_t element) const;
  std::vector<std::int64_t> place_of(std::size_t element) const;

  Trainer& trainer_;
  Communicator& world_;
  std::vector<program::Parameter> parameters_;  // of the whole model
  std::vector<std::size_t> begins_;             // of each, in the elements of the model
  std::size_t elements_ = 0;
  std::vector<char> owned_;          // of the flat parameters: those whose weights the rank owns,
  std::vector<char> trained_;        // and gradients and moments, too
  std::int64_t copied_weights_ = 0;  // elements that the rank owns; on rank 0 less those of the
  std::int64_t copied_trained_ = 0;  // model, so that the sum over ranks counts copies
  std::vector<Noted> noted_;
  std::vector<program::ExactCheck> checks_;
};

}  // namespace meshplan::runtime
