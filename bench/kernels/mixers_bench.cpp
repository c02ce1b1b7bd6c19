// How fast are the layers of linear attention beside plain loops, on one core? One table row per
// operation at the sizes of Qwen3-Next's layers (a share of the heads): ms of processor time,
// median, of a plain loop in fp32 (forward alone), of the forward and of the backward in fp32 and
// bf16. Usage: mixers_bench [tokens] [repeats]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cpu_backend.hpp"

namespace {

using namespace meshplan;           // NOLINT
using namespace meshplan::kernels;  // NOLINT

/// Median processor time of a call, in ms: other work on the machine does not count.
double time_of(int repeats, const std::function<void()>& call) {
  std::vector<double> times;
  call();
  for (int i = 0; i < repeats; ++i) {
    const std::clock_t begin = std::clock();
    call();
    times.push_back(1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<std::size_t>(repeats / 2)];
}

/// Memory of the backend, with numbers of [-1, 1] in a type.
class Array {
 public:
  Array(Backend& backend, std::int64_t count, DType dtype)
      : backend_(backend), data_(backend.allocate(count * size_of(dtype))) {
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i < count; ++i) {
      state = state * 1664525U + 1013904223U;
      const float value = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
      if (dtype == DType::F32)
        static_cast<float*>(data_)[i] = value;
      else
        static_cast<std::uint16_t*>(data_)[i] =
            static_cast<std::uint16_t>(state >> 31 << 15 | 0x3f00);
    }
  }
  ~Array() { backend_.free(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }

 private:
  Backend& backend_;
  void* data_;
};

struct Row {
  const char* name;
  double plain_ms;
  double forward_ms[2];
  double backward_ms[2];
};

void print(const Row& row) {
  std::printf("| %-22s | %9.2f | %9.2f | %9.2f | %9.2f | %9.2f | %6.1f |\n", row.name, row.plain_ms,
              row.forward_ms[0], row.backward_ms[0], row.forward_ms[1], row.backward_ms[1],
              row.plain_ms / row.forward_ms[0]);
}

double time_of(Backend& backend, int repeats, const Operation& op) {
  const std::int64_t bytes = backend.scratch_bytes(op);
  void* scratch = backend.allocate(bytes);
  backend.set_scratch(scratch, bytes);
  const double ms = time_of(repeats, [&] { backend.run(op); });
  backend.set_scratch(nullptr, 0);
  backend.free(scratch);
  return ms;
}

constexpr DType kTypes[] = {DType::F32, DType::BF16};

float silu(float x) {
  return x / (1.0F + std::exp(-x));
}

Row convolution_row(Backend& backend, std::int64_t tokens, int repeats) {
  const ShortConvolutionShape shape{
      .tokens = tokens, .seq_len = tokens, .channels = 1024, .taps = 4};
  const std::int64_t count = tokens * shape.channels;
  Row row{"ShortConvolution", 0.0, {}, {}};
  for (int i = 0; i < 2; ++i) {
    const Array x(backend, count, kTypes[i]), y(backend, count, kTypes[i]);
    const Array weight(backend, 4 * shape.channels, kTypes[i]), dx(backend, count, kTypes[i]);
    const Array dweight(backend, 4 * shape.channels, DType::F32);
    row.forward_ms[i] = time_of(backend, repeats,
                                ShortConvolutionForward{.shape = shape,
                                                        .dtype = kTypes[i],
                                                        .x = x.data(),
                                                        .x_stride = shape.channels,
                                                        .weight = weight.data(),
                                                        .y = y.data(),
                                                        .y_stride = shape.channels});
    row.backward_ms[i] = time_of(backend, repeats,
                                 ShortConvolutionBackward{.shape = shape,
                                                          .dtype = kTypes[i],
                                                          .dy = y.data(),
                                                          .dy_stride = shape.channels,
                                                          .x = x.data(),
                                                          .x_stride = shape.channels,
                                                          .weight = weight.data(),
                                                          .dx = dx.data(),
                                                          .dx_stride = shape.channels,
                                                          .dweight = dweight.floats()});
    if (kTypes[i] != DType::F32) continue;
    row.plain_ms = time_of(repeats, [&] {
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t c = 0; c < shape.channels; ++c) {
          float sum = 0.0F;
          for (std::int64_t d = 0; d < 4 && d <= t; ++d)
            sum += weight.floats()[c * 4 + 3 - d] * x.floats()[(t - d) * shape.channels + c];
          y.floats()[t * shape.channels + c] = silu(sum);
        }
    });
  }
  return row;
}

Row norm_row(Backend& backend, std::int64_t tokens, int repeats) {
  const GatedRmsNormShape shape{.tokens = tokens, .groups = 8, .size = 128};
  const std::int64_t width = shape.columns();
  Row row{"GatedRmsNorm", 0.0, {}, {}};
  for (int i = 0; i < 2; ++i) {
    const DType dtype = kTypes[i];
    const Array x(backend, tokens * width, dtype), z(backend, tokens * width, dtype);
    const Array y(backend, tokens * width, dtype), dx(backend, tokens * width, dtype);
    const Array dz(backend, tokens * width, dtype), weight(backend, width, dtype);
    const Array inv_rms(backend, tokens * 8, DType::F32), dweight(backend, width, DType::F32);
    row.forward_ms[i] =
        time_of(backend, repeats,
                GatedRmsNormForward{shape, 1e-6F, dtype, x.data(), width, z.data(), width,
                                    weight.data(), y.data(), width, inv_rms.floats()});
    row.backward_ms[i] =
        time_of(backend, repeats,
                GatedRmsNormBackward{shape, dtype, y.data(), width, x.data(), width, z.data(),
                                     width, weight.data(), inv_rms.floats(), dx.data(), width,
                                     dz.data(), width, dweight.floats(), false});
    if (dtype != DType::F32) continue;
    row.plain_ms = time_of(repeats, [&] {
      for (std::int64_t group = 0; group < tokens * 8; ++group) {
        const float* in = x.floats() + group * 128;
        float squares = 0.0F;
        for (int e = 0; e < 128; ++e) squares += in[e] * in[e];
        const float scale = 1.0F / std::sqrt(squares / 128.0F + 1e-6F);
        for (int e = 0; e < 128; ++e)
          y.floats()[group * 128 + e] =
              in[e] * scale * weight.floats()[e] * silu(z.floats()[group * 128 + e]);
      }
    });
  }
  return row;
}

/// Token by token, one head after the other.
void plain_delta(const GatedDeltaShape& s, const float* qkv, const float* ba, float* o,
                 float* state) {
  const std::int64_t group = s.value_heads / s.key_heads;
  std::vector<float> update(static_cast<std::size_t>(s.value_size));
  for (std::int64_t head = 0; head < s.value_heads; ++head) {
    std::fill(state, state + s.key_size * s.value_size, 0.0F);
    for (std::int64_t t = 0; t < s.tokens(); ++t) {
      const float* row = qkv + t * s.columns();
      const float* q = row + head / group * s.key_size;
      const float* k = q + s.key_heads * s.key_size;
      const float* v = row + 2 * s.key_heads * s.key_size + head * s.value_size;
      const float decay = std::exp(-std::log1p(std::exp(ba[t * 2 * s.value_heads + head])));
      std::fill(update.begin(), update.end(), 0.0F);
      for (std::int64_t e = 0; e < s.key_size; ++e)
        for (std::int64_t j = 0; j < s.value_size; ++j) {
          state[e * s.value_size + j] *= decay;
          update[static_cast<std::size_t>(j)] += state[e * s.value_size + j] * k[e];
        }
      for (std::int64_t j = 0; j < s.value_size; ++j) {
        float& u = update[static_cast<std::size_t>(j)];
        u = 0.01F * (v[j] - u);
      }
      float* out = o + t * s.value_columns() + head * s.value_size;
      std::fill(out, out + s.value_size, 0.0F);
      for (std::int64_t e = 0; e < s.key_size; ++e)
        for (std::int64_t j = 0; j < s.value_size; ++j) {
          state[e * s.value_size + j] += k[e] * update[static_cast<std::size_t>(j)];
          out[j] += state[e * s.value_size + j] * q[e];
        }
    }
  }
}

Row delta_row(Backend& backend, std::int64_t tokens, int repeats) {
  const GatedDeltaShape s{.num_sequences = 1,
                          .seq_len = tokens,
                          .key_heads = 2,
                          .value_heads = 4,
                          .key_size = 128,
                          .value_size = 128};
  Row row{"GatedDelta", 0.0, {}, {}};
  for (int i = 0; i < 2; ++i) {
    const DType dtype = kTypes[i];
    const Array qkv(backend, tokens * s.columns(), dtype), ba(backend, tokens * 8, dtype);
    const Array o(backend, tokens * s.value_columns(), dtype), weights(backend, 8, DType::F32);
    const Array states(backend, s.chunks() * s.state_size(), DType::F32);
    const Array dqkv(backend, tokens * s.columns(), dtype), dba(backend, tokens * 8, dtype);
    const Array sums(backend, 8, DType::F32);
    row.forward_ms[i] = time_of(backend, repeats,
                                GatedDeltaForward{.shape = s,
                                                  .dtype = dtype,
                                                  .qkv = qkv.data(),
                                                  .qkv_stride = s.columns(),
                                                  .ba = ba.data(),
                                                  .ba_stride = 8,
                                                  .dt_bias = weights.data(),
                                                  .a_log = weights.floats() + 4,
                                                  .o = o.data(),
                                                  .o_stride = s.value_columns(),
                                                  .states = states.floats()});
    row.backward_ms[i] = time_of(backend, repeats,
                                 GatedDeltaBackward{.shape = s,
                                                    .dtype = dtype,
                                                    .output_grad = o.data(),
                                                    .output_grad_stride = s.value_columns(),
                                                    .qkv = qkv.data(),
                                                    .qkv_stride = s.columns(),
                                                    .ba = ba.data(),
                                                    .ba_stride = 8,
                                                    .dt_bias = weights.data(),
                                                    .a_log = weights.floats() + 4,
                                                    .states = states.floats(),
                                                    .dqkv = dqkv.data(),
                                                    .dqkv_stride = s.columns(),
                                                    .dba = dba.data(),
                                                    .dba_stride = 8,
                                                    .ddt_bias = sums.floats(),
                                                    .da_log = sums.floats() + 4});
    if (dtype == DType::F32)
      row.plain_ms = time_of(
          repeats, [&] { plain_delta(s, qkv.floats(), ba.floats(), o.floats(), states.floats()); });
  }
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 2048;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  std::printf("%s, %lld tokens; ms of processor time\n\n", backend->name().c_str(),
              static_cast<long long>(tokens));
  std::printf(
      "| operation | plain loop | forward fp32 | backward fp32 | forward bf16 | backward bf16 | "
      "plain / forward fp32 |\n");
  std::printf("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  print(convolution_row(*backend, tokens, repeats));
  print(norm_row(*backend, tokens, repeats));
  print(delta_row(*backend, tokens, repeats));
}
