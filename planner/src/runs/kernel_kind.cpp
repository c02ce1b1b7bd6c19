// Kernels of PyTorch, cuBLAS, cuDNN, CUTLASS, FlashAttention, TransformerEngine, Apex, Triton and
// NCCL, told apart by parts of their names. The first row that fits decides.
#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "core/error.hpp"
#include "planner/runs/kineto_trace.hpp"

namespace meshplan::planner {
namespace {

struct NamePart {
  std::string_view part;  // in lower case
  KernelKind kind;
};

constexpr std::array kNameParts = {NamePart{"sendrecv", KernelKind::Message},
                                   NamePart{"nccl", KernelKind::Collective},
                                   NamePart{"rccl", KernelKind::Collective},
                                   NamePart{"memcpy", KernelKind::Copy},
                                   NamePart{"memset", KernelKind::Copy},
                                   NamePart{"fmha", KernelKind::Attention},
                                   NamePart{"flash", KernelKind::Attention},
                                   NamePart{"attention", KernelKind::Attention},
                                   NamePart{"sdpa", KernelKind::Attention},
                                   NamePart{"adam", KernelKind::Optimizer},
                                   NamePart{"lambstage", KernelKind::Optimizer},
                                   NamePart{"multi_tensor", KernelKind::Optimizer},
                                   NamePart{"cross_entropy", KernelKind::Loss},
                                   NamePart{"nll_loss", KernelKind::Loss},
                                   NamePart{"softmax", KernelKind::Loss},
                                   NamePart{"embedding", KernelKind::Embedding},
                                   NamePart{"indexselect", KernelKind::Embedding},
                                   NamePart{"gemm", KernelKind::Product},
                                   NamePart{"gemv", KernelKind::Product},
                                   NamePart{"cutlass", KernelKind::Product},
                                   NamePart{"cublas", KernelKind::Product},
                                   NamePart{"nvjet", KernelKind::Product},
                                   NamePart{"xmma", KernelKind::Product},
                                   NamePart{"splitk", KernelKind::Product},
                                   NamePart{"cijk_", KernelKind::Product},
                                   NamePart{"layernorm", KernelKind::Norm},
                                   NamePart{"layer_norm", KernelKind::Norm},
                                   NamePart{"rmsnorm", KernelKind::Norm},
                                   NamePart{"rms_norm", KernelKind::Norm},
                                   NamePart{"ln_fwd", KernelKind::Norm},
                                   NamePart{"ln_bwd", KernelKind::Norm},
                                   NamePart{"gammabeta", KernelKind::Norm},
                                   NamePart{"elementwise", KernelKind::Elementwise},
                                   NamePart{"triton", KernelKind::Elementwise},
                                   NamePart{"reduce_kernel", KernelKind::Elementwise},
                                   NamePart{"catarray", KernelKind::Elementwise},
                                   NamePart{"rotary", KernelKind::Elementwise},
                                   NamePart{"rope", KernelKind::Elementwise},
                                   NamePart{"silu", KernelKind::Elementwise},
                                   NamePart{"gelu", KernelKind::Elementwise},
                                   NamePart{"swiglu", KernelKind::Elementwise}};

}  // namespace

std::string_view name_of(KernelKind kind) {
  switch (kind) {
    case KernelKind::Product:
      return "product";
    case KernelKind::Attention:
      return "attention";
    case KernelKind::Norm:
      return "norm";
    case KernelKind::Loss:
      return "loss";
    case KernelKind::Embedding:
      return "embedding";
    case KernelKind::Elementwise:
      return "elementwise";
    case KernelKind::Optimizer:
      return "optimizer";
    case KernelKind::Collective:
      return "collective";
    case KernelKind::Message:
      return "message";
    case KernelKind::Copy:
      return "copy";
    case KernelKind::Other:
      return "other";
  }
  throw InvariantError("kind of a kernel without a name");
}

KernelKind kind_of_kernel(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const auto& [part, kind] : kNameParts)
    if (lower.find(part) != std::string::npos) return kind;
  return KernelKind::Other;
}

}  // namespace meshplan::planner
