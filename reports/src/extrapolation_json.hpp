#pragma once

#include <string>
#include <vector>

#include "core/json_fields.hpp"
#include "sim/engine/extrapolation.hpp"

namespace meshplan::reports {

struct ExtrapolationJson {
  std::string what;
  std::string unit;
  double measured_least = 0;
  double measured_most = 0;
  double asked = 0;
  double beyond = 0;
  double seconds = 0;
};

template <class Visitor>
void fields(Visitor& v, ExtrapolationJson& e) {
  v.required("what", e.what, "kind of operation or communication");
  v.required("unit", e.unit, "of the sizes: bytes or work");
  v.required("measured_least", e.measured_least, "smallest size that was measured", at_least(0));
  v.required("measured_most", e.measured_most, "largest size that was measured", at_least(0));
  v.required("asked", e.asked, "size farthest from the measured ones", at_least(0));
  v.required("beyond", e.beyond, "times larger or smaller than any measured one", at_least(0));
  v.required("seconds", e.seconds, "that all of them take in a step", at_least(0));
}

inline std::vector<ExtrapolationJson> extrapolation_rows(
    const std::vector<sim::Extrapolation>& extrapolations) {
  std::vector<ExtrapolationJson> rows;
  for (const sim::Extrapolation& one : extrapolations)
    rows.push_back({.what = one.what,
                    .unit = one.message ? "bytes" : "work",
                    .measured_least = one.sizes.least,
                    .measured_most = one.sizes.most,
                    .asked = one.sizes.asked,
                    .beyond = one.sizes.beyond(),
                    .seconds = one.seconds});
  return rows;
}

inline Json extrapolations_json(const std::vector<sim::Extrapolation>& extrapolations) {
  std::vector<ExtrapolationJson> rows = extrapolation_rows(extrapolations);
  return JsonWriter::convert(rows);
}

}  // namespace meshplan::reports
