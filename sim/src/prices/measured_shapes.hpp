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

/// By what the presets hold of the cluster's device (Device::operators): the tables in
/// sim/operators. 1 where they hold nothing, as of every cluster that names no device.
ShapeCorrection shape_correction(const MeasuredWork& work, const Cluster& cluster);
/// @param device  as the tables name it
ShapeCorrection shape_correction(const MeasuredWork& work, std::string_view device,
                                 MeasuredShapes::Shape shapes);

/// Is a table's collective on the innermost level the cluster's: with links as fast, and switches
/// that sum if those of the table did?
bool speaks_for_collectives(const Cluster& cluster, program::Collective collective);

}  // namespace meshplan::sim
