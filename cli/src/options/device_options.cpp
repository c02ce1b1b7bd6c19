#include "options/device_options.hpp"

namespace meshplan::cli {

void add_device_options(Command& command, DeviceOptions& options,
                        const std::string& default_device) {
  command.group("What it computes on")
      .choice("--device", options.device, {"cpu", "cuda", "auto"}, "default: " + default_device)
      .choice("--comm", options.comm, {"nccl", "mpi", "auto"},
              "between GPUs; default: NCCL where each rank has a GPU of its own")
      .flag("--share-gpu", options.share_gpu,
            "let ranks that share a GPU communicate by NCCL (a test of function, not of speed)")
      .flag("--no-graphs", options.no_graphs, "launch kernels one by one instead of CUDA graphs")
      .option("--threads-per-rank", options.threads_per_rank, "compute threads of a CPU rank")
      .at_least(1);
}

}  // namespace meshplan::cli
