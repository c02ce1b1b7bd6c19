#include "explain/step_part_names.hpp"

#include "core/error.hpp"

namespace meshplan::reports {

std::string_view words_for(sim::StepPart part) {
  using sim::StepPart;
  switch (part) {
    case StepPart::Ideal:
      return "model FLOPs at the peak";
    case StepPart::Beyond:
      return "FLOPs beyond the model's";
    case StepPart::Products:
      return "matrix products below the peak";
    case StepPart::Attention:
      return "attention below the peak";
    case StepPart::Streams:
      return "memory-bound operations";
    case StepPart::Slowdown:
      return "slowed by what runs beside it";
    case StepPart::Recompute:
      return "recompute";
    case StepPart::Tensor:
      return "exposed tp, sp";
    case StepPart::Context:
      return "exposed cp";
    case StepPart::Experts:
      return "exposed ep";
    case StepPart::Sends:
      return "exposed sends of the pipeline";
    case StepPart::Bubble:
      return "bubble";
    case StepPart::Data:
      return "exposed dp, ZeRO";
    case StepPart::Optimizer:
      return "optimizer";
    case StepPart::Offload:
      return "copies of offloaded state";
    case StepPart::Host:
      return "host";
    case StepPart::Waits:
      return "waits between operations";
    case StepPart::Overhead:
      return "stragglers and overhead";
  }
  throw InvariantError("step part without words");
}

}  // namespace meshplan::reports
