// Which operation of a layer made what another one reads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/block.hpp"

namespace meshplan::program {

/// An operation of a block, by list and index.
struct Maker {
  bool backward = false;
  int operation = 0;
  bool operator==(const Maker&) const = default;
};

/// Every operand of a block's operations names one version of a buffer: what works in place makes a
/// new value in the memory of the one that it changes. So the operation that made an operand is
/// known, and whether something else lies in its memory by then can be told.
struct Dataflow {
  /// Of each operation, by input; none: it comes from outside of the layer, or many add to it.
  using Makers = std::vector<std::vector<std::optional<Maker>>>;
  Makers forward, backward;
  std::optional<Maker> output;          // that made what the next layer gets
  std::optional<Maker> input_gradient;  // that made what the layer before gets
  /// In words: operands that nothing has made when they are read, or that have been written over.
  std::vector<std::string> errors;

  const Makers& of(bool in_backward) const { return in_backward ? backward : forward; }
};

/// Plays the forward pass, then the backward pass: as it is listed, and where weight gradients are
/// put off (weight_gradients.hpp) also with them at the end. Between these parts other layers run,
/// so transient values are gone.
Dataflow dataflow_of(const Block& block);

/// To be called after each pass of lowering. @throws InvariantError that names `pass`
void require_sound(const Block& block, std::string_view pass);

/// Could the operation at `from` run at `to` instead, and all between them one place further? True
/// if none of these writes what it reads or writes, or reads what it writes.
bool may_move(const Block& block, const std::vector<Operation>& operations, std::size_t from,
              std::size_t to);

}  // namespace meshplan::program
