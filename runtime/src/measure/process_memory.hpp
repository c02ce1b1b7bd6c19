// What a rank's process takes by itself.
#pragma once

namespace meshplan::runtime {

class Communicator;
class Device;

/// Resident bytes of the largest process of `world` beside the arena of its program, after one
/// step of a trivial model on all ranks: with MPI's buffers, the kernels' libraries and what they
/// hold once they were used. Collective; to be called before anything of size was measured, for a
/// process keeps part of what it has freed. The ranks compute on processor cores.
double measure_process_bytes(Communicator& world, Device& device);

}  // namespace meshplan::runtime
