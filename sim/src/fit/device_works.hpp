// Rows of operator tables by the device that they were measured on.
#pragma once

#include <string>
#include <vector>

#include "sim/fit/operator_validation.hpp"

namespace meshplan::sim {

/// The judged rows of one file and device.
struct DeviceWorks {
  std::string file, device;
  Cluster data_sheet;  // with ranks enough for every row
  std::vector<const MeasuredWork*> rows;
};

/// Devices in alphabetical order; those without a data sheet are left out.
std::vector<DeviceWorks> by_device(const WorkTable& table);

}  // namespace meshplan::sim
