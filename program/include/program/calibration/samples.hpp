// Raw measurements of communication, written by the runtime and fitted by the simulator.
#pragma once

#include <cstdint>

#include "program/calibration/collective_table.hpp"

namespace meshplan::program {

/// One measured communication: times are those of the slowest rank of the group, over repeats.
struct CommSample {
  CommOp op = CommOp::AllReduce;
  int group_size = 2;
  int ranks_on_host = 2;   // all ranks of the job on the busiest host, measuring or waiting
  int cores_on_host = 2;   // cores these may run on
  std::int64_t bytes = 0;  // what one rank passes in, as in CollectiveTable::choose
  CommAlgorithm algorithm = CommAlgorithm::Ring;
  bool cold = false;  // in place on buffers that no cache holds: gradients, parameters
  int repeats = 0;
  double seconds = 0;  // first quartile of undisturbed timings
  double p10_s = 0;
  double p90_s = 0;
  bool operator==(const CommSample&) const = default;
};

/// One direction between two ranks: half of a ping-pong.
struct LinkSample {
  int from = 0;  // world ranks
  int to = 0;
  bool same_host = true;
  std::int64_t bytes = 0;
  int repeats = 0;
  double seconds = 0;  // first quartile of undisturbed timings, one way
  double p10_s = 0;
  double p90_s = 0;
  bool operator==(const LinkSample&) const = default;
};

}  // namespace meshplan::program
