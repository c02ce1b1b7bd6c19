// Who else uses the cores that a job runs on.
#pragma once

#include <string_view>
#include <vector>

#include "program/calibration/machine_speed.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/job_layout.hpp"

namespace meshplan::runtime {

/// Time of some cores together, since the machine started.
struct CoreSeconds {
  double busy = 0;  // running anything, also what a hypervisor ran instead ("steal")
  double all = 0;
  bool operator==(const CoreSeconds&) const = default;
};

/// From the text of /proc/stat (proc(5)). @param cores  by number
/// @param ticks_per_s  sysconf(_SC_CLK_TCK)
CoreSeconds parse_core_seconds(std::string_view stat, const std::vector<int>& cores,
                               double ticks_per_s);

/// Processor seconds of this process, all of its threads.
double process_seconds();

/// Cores that others kept busy: the busy part of the job's cores, less what the job used itself.
/// 0 where nothing is known, as of less than 0.2 s.
/// @param used  while `wall_s` passed  @param own_s  processor seconds of the job meanwhile
double other_cores(const CoreSeconds& used, double own_s, double wall_s, int num_cores);

/// Watches the cores of every machine of a job from its construction on.
class HostLoad {
 public:
  /// @param layout  must outlive it
  explicit HostLoad(const JobLayout& layout);

  /// Cores that other processes kept busy since construction or the last call, on the machine where
  /// most; collective over `world`, the same on all ranks. Fills MachineSpeed's other_cores, cores
  /// and ranks_on_host.
  void measure(Communicator& world, program::MachineSpeed& speed);

 private:
  const JobLayout& layout_;
  CoreSeconds cores_;
  double own_s_ = 0;
  double since_s_ = 0;
};

}  // namespace meshplan::runtime
