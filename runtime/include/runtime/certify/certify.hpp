// Runs the twins of a plan beside one rank (docs/certificates/certificate.md).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "program/certificate/certificate.hpp"
#include "program/certificate/twin.hpp"

namespace meshplan::kernels {
class Backend;
}

namespace meshplan::runtime {

class Communicator;
class Device;
class StatusBoard;

/// What a rank runs twins with.
struct TwinJob {
  Communicator& world;            // in host memory
  Device& device;                 // that the twins compute on
  kernels::Backend& reference;    // that one rank computes on: the device's own, or a processor's
  std::string device_name = {};   // for the certificate; empty: as the device's backend names it
  StatusBoard* status = nullptr;  // may be null
};

/// Runs each twin on the first ranks of the job, then the same model and batch on rank 0 alone, by
/// the kernels of `reference`. If these are not the device's own, the one rank computes in fp32
/// whatever the twins' precision. Collective over the job's world, which has as many ranks as the
/// largest twin.
/// @param on_twin  called on every rank after each twin, with how many are done
/// @returns what rank 0 compared; nothing on the others
std::vector<program::TwinResult> certify(std::span<const program::Twin> twins, const TwinJob& job,
                                         const std::function<void(std::size_t)>& on_twin);

}  // namespace meshplan::runtime
