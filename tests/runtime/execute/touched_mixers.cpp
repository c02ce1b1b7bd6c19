#include "runtime/execute/touched_bytes.hpp"

namespace meshplan::test {

using namespace kernels;  // NOLINT: one overload for each of its operators

Touched touched(const SsdForward& op) {
  const SsdShape& s = op.shape;
  const std::int64_t states = s.num_sequences * s.state_elements();
  return Touched()
      .read_rows(op.xbc, s.tokens(), s.xbc_columns(), op.xbc_stride, op.dtype)
      .read_rows(op.dt, s.tokens(), s.heads, op.dt_stride, op.dtype)
      .read(op.a_log, s.heads, op.dtype)
      .read(op.d, s.heads, op.dtype)
      .read(op.dt_bias, s.heads, op.dtype)
      .read(op.positions, s.tokens(), DType::I32)
      .read(op.initial_state, states, DType::F32)
      .write_rows(op.y, s.tokens(), s.columns(), op.y_stride, op.dtype)
      .write(op.states, states * s.num_chunks(), DType::F32)
      .write(op.final_state, states, DType::F32);
}
Touched touched(const SsdBackward& op) {
  const SsdShape& s = op.shape;
  const std::int64_t states = s.num_sequences * s.state_elements();
  return Touched()
      .read_rows(op.dy, s.tokens(), s.columns(), op.dy_stride, op.dtype)
      .read_rows(op.xbc, s.tokens(), s.xbc_columns(), op.xbc_stride, op.dtype)
      .read_rows(op.dt, s.tokens(), s.heads, op.dt_stride, op.dtype)
      .read(op.a_log, s.heads, op.dtype)
      .read(op.d, s.heads, op.dtype)
      .read(op.dt_bias, s.heads, op.dtype)
      .read(op.positions, s.tokens(), DType::I32)
      .read(op.states, states * s.num_chunks(), DType::F32)
      .read(op.final_state_grad, states, DType::F32)
      .write_rows(op.dxbc, s.tokens(), s.xbc_columns(), op.dxbc_stride, op.dtype)
      .write_rows(op.ddt, s.tokens(), s.heads, op.ddt_stride, op.dtype)
      .update(op.da_log, s.heads, DType::F32, op.accumulate)
      .update(op.dd, s.heads, DType::F32, op.accumulate)
      .update(op.ddt_bias, s.heads, DType::F32, op.accumulate)
      .write(op.initial_state_grad, states, DType::F32);
}
Touched touched(const ShortConvolutionForward& op) {
  const auto& [tokens, seq_len, channels, taps, silu] = op.shape;
  return Touched()
      .read_rows(op.x, tokens, channels, op.x_stride, op.dtype)
      .read(op.weight, channels * taps, op.dtype)
      .read(op.bias, channels, op.dtype)
      .read(op.positions, tokens, DType::I32)
      .write_rows(op.y, tokens, channels, op.y_stride, op.dtype);
}
Touched touched(const ShortConvolutionBackward& op) {
  const auto& [tokens, seq_len, channels, taps, silu] = op.shape;
  return Touched()
      .read_rows(op.dy, tokens, channels, op.dy_stride, op.dtype)
      .read_rows(op.x, tokens, channels, op.x_stride, op.dtype)
      .read(op.weight, channels * taps, op.dtype)
      .read(op.bias, channels, op.dtype)
      .read(op.positions, tokens, DType::I32)
      .write_rows(op.dx, tokens, channels, op.dx_stride, op.dtype)
      .update(op.dweight, channels * taps, DType::F32, op.accumulate)
      .update(op.dbias, channels, DType::F32, op.accumulate);
}
Touched touched(const GatedRmsNormForward& op) {
  const GatedRmsNormShape& s = op.shape;
  return Touched()
      .read_rows(op.x, s.tokens, s.columns(), op.x_stride, op.dtype)
      .read_rows(op.z, s.tokens, s.columns(), op.z_stride, op.dtype)
      .read(op.weight, s.weights(), op.dtype)
      .write_rows(op.y, s.tokens, s.columns(), op.y_stride, op.dtype)
      .write(op.inv_rms, s.tokens * s.groups, DType::F32);
}
Touched touched(const GatedRmsNormBackward& op) {
  const GatedRmsNormShape& s = op.shape;
  return Touched()
      .read_rows(op.dy, s.tokens, s.columns(), op.dy_stride, op.dtype)
      .read_rows(op.x, s.tokens, s.columns(), op.x_stride, op.dtype)
      .read_rows(op.z, s.tokens, s.columns(), op.z_stride, op.dtype)
      .read(op.weight, s.weights(), op.dtype)
      .read(op.inv_rms, s.tokens * s.groups, DType::F32)
      .write_rows(op.dx, s.tokens, s.columns(), op.dx_stride, op.dtype)
      .write_rows(op.dz, s.tokens, s.columns(), op.dz_stride, op.dtype)
      .update(op.dweight, s.weights(), DType::F32, op.accumulate);
}
Touched touched(const GatedDeltaForward& op) {
  const GatedDeltaShape& s = op.shape;
  return Touched()
      .read_rows(op.qkv, s.tokens(), s.columns(), op.qkv_stride, op.dtype)
      .read_rows(op.ba, s.tokens(), 2 * s.value_heads, op.ba_stride, op.dtype)
      .read(op.dt_bias, s.value_heads, op.decay_dtype)
      .read(op.a_log, s.value_heads, op.decay_dtype)
      .read(op.positions, s.tokens(), DType::I32)
      .read(op.initial_state, s.state_size(), DType::F32)
      .write_rows(op.o, s.tokens(), s.value_columns(), op.o_stride, op.dtype)
      .write(op.states, s.chunks() * s.state_size(), DType::F32)
      .write(op.final_state, s.state_size(), DType::F32);
}
Touched touched(const GatedDeltaBackward& op) {
  const GatedDeltaShape& s = op.shape;
  return Touched()
      .read_rows(op.output_grad, s.tokens(), s.value_columns(), op.output_grad_stride, op.dtype)
      .read_rows(op.qkv, s.tokens(), s.columns(), op.qkv_stride, op.dtype)
      .read_rows(op.ba, s.tokens(), 2 * s.value_heads, op.ba_stride, op.dtype)
      .read(op.dt_bias, s.value_heads, op.decay_dtype)
      .read(op.a_log, s.value_heads, op.decay_dtype)
      .read(op.positions, s.tokens(), DType::I32)
      .read(op.states, s.chunks() * s.state_size(), DType::F32)
      .read(op.final_state_grad, s.state_size(), DType::F32)
      .write_rows(op.dqkv, s.tokens(), s.columns(), op.dqkv_stride, op.dtype)
      .write_rows(op.dba, s.tokens(), 2 * s.value_heads, op.dba_stride, op.dtype)
      .update(op.ddt_bias, s.value_heads, DType::F32, op.accumulate)
      .update(op.da_log, s.value_heads, DType::F32, op.accumulate)
      .write(op.initial_state_grad, s.state_size(), DType::F32);
}

}  // namespace meshplan::test
