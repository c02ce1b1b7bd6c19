// How fast and how busy a machine was while something was measured on it.
#pragma once

namespace meshplan::program {

/// Seen by the ranks of one job, beside its steps. The reference is a fixed matrix product that
/// stays in a core's own cache (runtime/reference_product.hpp).
struct MachineSpeed {
  double reference_s = 0;   // mean over the ranks that ran it at once; 0 = not measured
  int reference_ranks = 1;  // on the fullest machine: no more than it has cores
  double other_cores = 0;   // that other processes kept busy, on the machine where most
  int cores = 0;            // that the job's ranks may run on there; 0 = not known
  int ranks_on_host = 1;    // of the job there
  bool operator==(const MachineSpeed&) const = default;
};

/// What a calibration saw of the machine's quiet.
struct Quietness {
  double reference_s = 0;       // mean, one rank alone; 0 = not measured
  double reference_busy_s = 0;  // while every core ran it
  /// What disturbances added to the undisturbed time of operators, as a part of it: of one rank
  /// alone, and of the slowest of all while every core was busy.
  double noise = 0;
  double noise_busy = 0;
  double reference_p10_s = 0;  // of all, alone
  double reference_p50_s = 0;
  int samples = 0;          // of operators and messages
  int disturbed = 0;        // of them
  int repeated_visits = 0;  // to cases with too few undisturbed samples
  double other_cores = 0;   // that other processes kept busy
  bool operator==(const Quietness&) const = default;
};

}  // namespace meshplan::program
