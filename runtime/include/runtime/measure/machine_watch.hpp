// How fast and busy the machine is around a run.
#pragma once

#include <memory>

#include "program/calibration/machine_speed.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/job_layout.hpp"
#include "runtime/measure/reference_product.hpp"

namespace meshplan::runtime {

class HostLoad;

/// Runs the reference product before and after what lies between its construction and finish(),
/// for 20 ms each, and watches the cores meanwhile. Collective over `world`.
class MachineWatch {
 public:
  /// All must outlive it. @param product  null: only the cores are watched
  MachineWatch(Communicator& world, const JobLayout& layout,
               std::unique_ptr<ReferenceProduct> product);
  ~MachineWatch();
  MachineWatch(const MachineWatch&) = delete;
  MachineWatch& operator=(const MachineWatch&) = delete;

  /// Load of the cores since the last call. Collective.
  program::MachineSpeed cores();
  /// Mean of the reference before and after, and the cores since the last call. Collective.
  program::MachineSpeed finish();

 private:
  Communicator& world_;
  const JobLayout& layout_;
  std::unique_ptr<ReferenceProduct> product_;
  program::MachineSpeed before_;
  std::unique_ptr<HostLoad> load_;
};

}  // namespace meshplan::runtime
