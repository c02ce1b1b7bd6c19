// A fixed matrix product: what it takes says how fast a core is just now.
#pragma once

#include <memory>
#include <vector>

#include "core/units.hpp"
#include "kernels/backend.hpp"
#include "kernels/products/linear.hpp"
#include "program/calibration/machine_speed.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/job_layout.hpp"

namespace meshplan::runtime {

/// fp32, 64 tokens of 128 features to 128 features: 2.1 MFLOP on 128 KiB, which the core's own
/// cache holds. So it shows the core's clock, what a neighbour on the same core takes of it, and,
/// over many calls, how often the kernel gives the core to others; not a busy memory. Never of a
/// GPU.
class ReferenceProduct {
 public:
  /// @param backend  of its own, with one thread, that computes in host memory
  explicit ReferenceProduct(std::unique_ptr<kernels::Backend> backend);
  ~ReferenceProduct();
  ReferenceProduct(const ReferenceProduct&) = delete;
  ReferenceProduct& operator=(const ReferenceProduct&) = delete;

  /// Seconds of one call, after one that brings the operands back into the cache.
  double seconds();
  /// Mean of what seconds() has returned since this was last asked; 0 if nothing.
  double take_mean();
  /// Mean seconds of the calls that `time` holds, at least one: interruptions count as they come.
  double mean_seconds(Seconds time);

 private:
  kernels::LinearForward product();
  void run();

  std::unique_ptr<kernels::Backend> backend_;
  std::vector<float> x_, weight_, y_;
  double sum_s_ = 0;
  int calls_ = 0;
  void* scratch_ = nullptr;
};

/// Mean seconds of the product while as many ranks of each machine as it has cores run it for
/// `time` and the others sleep, mean over these. Collective over `world`; fills reference_s and
/// reference_ranks, alike on all ranks.
void measure_reference(ReferenceProduct& product, Communicator& world, const JobLayout& layout,
                       Seconds time, program::MachineSpeed& speed);

}  // namespace meshplan::runtime
