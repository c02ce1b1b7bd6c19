#pragma once

#include "program/program.hpp"

namespace meshplan::program {

/// Weights on the host: brings the owned part of a bucket's to the device, into the unit's slot or
/// where they stay for the step.
Operation fetch_weights(const Bucket& bucket, int index, Phase phase);

}  // namespace meshplan::program
