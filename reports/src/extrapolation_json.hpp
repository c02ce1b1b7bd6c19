#pragma once

#include "core/json_fields.hpp"
#include "sim/engine/extrapolation.hpp"

namespace meshplan::reports {

inline Json extrapolations_json(const std::vector<sim::Extrapolation>& extrapolations) {
  Json list = Json::array();
  for (const sim::Extrapolation& one : extrapolations)
    list.push_back({{"what", one.what},
                    {"unit", one.message ? "bytes" : "work"},
                    {"measured_least", one.sizes.least},
                    {"measured_most", one.sizes.most},
                    {"asked", one.sizes.asked},
                    {"beyond", one.sizes.beyond()},
                    {"seconds", one.seconds}});
  return list;
}

}  // namespace meshplan::reports
