#include "program/compute_kind.hpp"

#include "core/error.hpp"

namespace meshplan::program {

ComputeKind compute_kind(models::OpKind kind) {
  switch (kind) {
    case models::OpKind::Embedding:
      return ComputeKind::Embedding;
    case models::OpKind::PositionEmbedding:
      return ComputeKind::PositionEmbedding;
    case models::OpKind::Scale:
      return ComputeKind::Scale;
    case models::OpKind::RmsNorm:
      return ComputeKind::RmsNorm;
    case models::OpKind::LayerNorm:
      return ComputeKind::LayerNorm;
    case models::OpKind::HeadRmsNorm:
      return ComputeKind::HeadRmsNorm;
    case models::OpKind::Linear:
      return ComputeKind::Linear;
    case models::OpKind::Rope:
      return ComputeKind::Rope;
    case models::OpKind::Attention:
      return ComputeKind::Attention;
    case models::OpKind::SigmoidGate:
      return ComputeKind::SigmoidGate;
    case models::OpKind::GatedActivation:
      return ComputeKind::GatedActivation;
    case models::OpKind::Activation:
      return ComputeKind::Activation;
    case models::OpKind::Add:
      return ComputeKind::Add;
    case models::OpKind::Slice:
      return ComputeKind::Slice;
    case models::OpKind::Concat:
      return ComputeKind::Concat;
    case models::OpKind::Router:
      return ComputeKind::Router;
    case models::OpKind::Dispatch:
      return ComputeKind::Dispatch;
    case models::OpKind::GroupedLinear:
      return ComputeKind::GroupedLinear;
    case models::OpKind::Combine:
      return ComputeKind::Combine;
    case models::OpKind::Pool:
      return ComputeKind::Pool;
    case models::OpKind::CrossEntropy:
      return ComputeKind::CrossEntropy;
    case models::OpKind::LatentAttention:
      return ComputeKind::LatentHeads;
    case models::OpKind::ShortConvolution:
      return ComputeKind::ShortConvolution;
    case models::OpKind::GatedNorm:
      return ComputeKind::GatedNorm;
    case models::OpKind::LinearAttention:
      return ComputeKind::LinearAttention;
    case models::OpKind::StateSpace:
      return ComputeKind::StateSpace;
    case models::OpKind::SelectKeys:
      return ComputeKind::SelectKeys;
    case models::OpKind::AddSections:
    case models::OpKind::CompressKeys:
    case models::OpKind::GroupedOutput:
    case models::OpKind::Multiply:
    case models::OpKind::StreamMix:
      break;
  }
  throw InvariantError("an operation that is counted and never lowered");
}

}  // namespace meshplan::program
