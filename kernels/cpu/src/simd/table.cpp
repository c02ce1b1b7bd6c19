#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

const KernelTable& table() {
  static constexpr KernelTable kTable = {
      .rms_norm_forward = rms_norm_forward,
      .rms_norm_input_grad = rms_norm_input_grad,
      .layer_norm_forward = layer_norm_forward,
      .layer_norm_input_grad = layer_norm_input_grad,
      .rope = rope,
      .gated_activation_forward = gated_activation_forward,
      .gated_activation_backward = gated_activation_backward,
      .embedding_forward = embedding_forward,
      .position_embedding_forward = position_embedding_forward,
      .cross_entropy_local = cross_entropy_local,
      .cross_entropy_backward = cross_entropy_backward,
      .random_normal = random_normal,
      .dispatch_forward = dispatch_forward,
      .combine_forward = combine_forward,
      .combine_backward = combine_backward,
      .latent_heads_forward = latent_heads_forward,
      .latent_heads_backward = latent_heads_backward,
      .sigmoid_gate_forward = sigmoid_gate_forward,
      .sigmoid_gate_backward = sigmoid_gate_backward,
      .ssd_bc_grads = ssd_bc_grads,
      .rms_norm_weight_grad = rms_norm_weight_grad,
      .layer_norm_weight_grad = layer_norm_weight_grad,
      .bias_grad = bias_grad,
      .embedding_backward = embedding_backward,
      .position_embedding_backward = position_embedding_backward,
      .activation_forward = activation_forward,
      .activation_backward = activation_backward,
      .add = add,
      .accumulate = accumulate,
      .scale = scale,
      .fill = fill,
      .convert = convert,
      .adam = adam,
      .sgd = sgd,
      .sum_of_squares = sum_of_squares,
      .attention_forward = attention_forward,
      .attention_backward = attention_backward,
      .ssd_forward = ssd_forward,
      .ssd_backward = ssd_backward,
      .sparse_attention_backward = sparse_attention_backward,
      .sparse_attention_forward = sparse_attention_forward,
      .indexer_loss_forward = indexer_loss_forward,
      .indexer_loss_query_grad = indexer_loss_query_grad,
      .indexer_loss_key_grad = indexer_loss_key_grad,
      .pack_index_keys = pack_index_keys,
      .select_keys = select_keys,
  };
  return kTable;
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
