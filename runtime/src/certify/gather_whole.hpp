// Regions of a sharded run in the unsharded form.
#pragma once

#include "program/certificate/twin_run.hpp"
#include "train/trainer.hpp"

namespace meshplan::runtime {

/// Values of an fp32 region by parameter: each rank gives what it owns, and of what several own the
/// first one's counts. Parameters of which the region holds nothing are left out. Collective over
/// `world`; the result is complete on every rank.
program::NamedTensors gather_whole(Trainer& trainer, program::Region region, Communicator& world);

/// What compressing gradients has lost so far and is still to be added, summed over all ranks.
program::NamedTensors gather_lost(Trainer& trainer, Communicator& world);

}  // namespace meshplan::runtime
