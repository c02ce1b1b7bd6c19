#include "sim/stacks/cluster_preset.hpp"

#include "prices/device_speeds.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "sim/stacks/execution_profile.hpp"

namespace meshplan::sim {

Cluster load_cluster_preset(std::string_view name) {
  static const Constants constants = constants_of(fitted_constants());
  return with_fitted_speeds(load_data_sheet(name), constants,
                            load_execution_profile("meshplan").flash);
}

}  // namespace meshplan::sim
