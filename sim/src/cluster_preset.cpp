#include "sim/cluster_preset.hpp"

#include "device_speeds.hpp"
#include "sim/execution_profile.hpp"
#include "sim/fitted_constants.hpp"

namespace meshplan::sim {

Cluster load_cluster_preset(std::string_view name) {
  static const Constants constants = constants_of(fitted_constants());
  return with_fitted_speeds(load_data_sheet(name), constants,
                            load_execution_profile("meshplan").flash);
}

}  // namespace meshplan::sim
