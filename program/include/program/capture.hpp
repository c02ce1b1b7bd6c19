// Which runs of a program can be captured once and replayed (CUDA Graphs).
#pragma once

#include <vector>

#include "program/program.hpp"

namespace meshplan::program {

/// Who moves a communication along once it has been started.
enum class CommunicationDriver {
  Device,  // it is queued on the device like a kernel (NCCL)
  Host,    // the host copies, sends and waits (MPI)
};

/// Instances [begin, end) of a program.
struct CaptureRegion {
  int begin = 0;
  int end = 0;
  bool operator==(const CaptureRegion&) const = default;
};

/// Does it talk to other ranks?
bool is_communication(const Operation& operation);

/// Can this operation be captured? Its sizes and addresses are the same in every step, and the host
/// has no part in it: computing and, where the device drives them, communications; never loading
/// the batch. @param ep  of the plan: without an exchange experts' rows are known by the device
/// alone
bool is_static(const Operation& operation, int ep, CommunicationDriver driver);

/// Maximal runs of static instances in issue order. A run also ends before an instance that waits
/// for a communication which the host drives, for the host must wait there.
std::vector<CaptureRegion> capture_regions(const Program& program, CommunicationDriver driver);

}  // namespace meshplan::program
