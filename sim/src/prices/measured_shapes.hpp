// Corrections of the formulas by operators that were timed: what those of near shapes took over
// what the formulas say of them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prices/device_speeds.hpp"

namespace meshplan::sim {

/// Timed operators of one device.
class MeasuredShapes {
 public:
  /// @param ratio  measured over formula
  void add(const MeasuredWork& row, double ratio);

  enum class Shape { Any, Others };  // Others: all but the very shape
  /// The mean of the logarithms of the nearest ratios, as many as a simplex around the shape has
  /// corners, weighted by inverse squared distance in powers of two; two of them away the formula
  /// counts as much as a ratio does.
  ShapeCorrection of(const MeasuredWork& work, Shape shapes = Shape::Any) const;

 private:
  struct Timed {
    std::vector<double> sizes;
    double log_ratio = 0;
  };
  using Kind = std::pair<std::string, std::vector<double>>;
  static Kind kind_of(const MeasuredWork& work, const WorkShape& shape);
  std::map<Kind, std::vector<Timed>> kinds_;
};

/// By the tables in sim/operators. @param device  as they name it (Device::operators); 1 of others
ShapeCorrection shape_correction(const MeasuredWork& work, std::string_view device,
                                 MeasuredShapes::Shape shapes);

/// Of products and of all attention; a search asks for the same ones again and again, so that a
/// thread remembers what it was told.
ShapeCorrection product_correction(const ProductWork& product, std::string_view device);
ShapeCorrection attention_correction(const AttentionWork& attention, std::string_view device);
ShapeCorrection linear_attention_correction(const LinearAttentionWork& work,
                                            std::string_view device);
ShapeCorrection convolution_correction(const ShortConvolutionWork& work, std::string_view device);

/// Likewise of a collective inside the innermost level, by the tables that it names. An all-reduce
/// is corrected only where switches sum, or not, as they did when it was timed.
/// @param ranks  that take part @param bytes  that one of them passes in
ShapeCorrection collective_correction(program::Collective collective, int ranks, double bytes,
                                      const Cluster& cluster);

/// Likewise of DeepEP's kernels inside a node.
ShapeCorrection exchange_correction(const ExchangeWork& work, const Cluster& cluster);

}  // namespace meshplan::sim
