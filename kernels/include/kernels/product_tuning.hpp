// Which kernel of a library computes each matrix product, chosen by its time. Kernels sum in
// different orders, so ranks and runs that are to agree to the bit must choose alike: what one
// finds out is text that another takes over (runtime/product_choices.hpp).
#pragma once

#include <string>

namespace meshplan::kernels {

/// The products are those of the operations that the backend was asked for scratch_bytes of.
class ProductTuning {
 public:
  ProductTuning() = default;
  virtual ~ProductTuning() = default;
  ProductTuning(const ProductTuning&) = delete;
  ProductTuning& operator=(const ProductTuning&) = delete;

  /// GPU and library that choices hold for: "NVIDIA H100 80GB HBM3 sm_90, cuBLASLt 130100".
  virtual std::string subject() const = 0;
  /// Is there a product whose kernel is not chosen yet?
  virtual bool misses_choices() = 0;
  /// Chooses for all of them. What operations write is overwritten: before the first step.
  virtual void time_products() = 0;
  /// All choices.
  virtual std::string choices() const = 0;
  /// Adds choices that are not there yet. @return empty, or why the text is of no use, which then
  /// changes nothing
  virtual std::string adopt(const std::string& choices) = 0;
};

}  // namespace meshplan::kernels
