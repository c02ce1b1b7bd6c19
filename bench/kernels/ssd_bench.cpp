// The state-space mixer of Mamba 2 on one core, beside its recurrence as a plain fp32 loop. One
// table row per model and chunk size: milliseconds of processor time
// (median) of both passes, their GFLOP/s by the
// count of SsdForward and SsdBackward, and the loop's. Outputs are compared first. Usage: ssd_bench
// [tokens] [seconds per case]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cpu_backend.hpp"

namespace {

using namespace meshplan;  // NOLINT: a program of one file
using kernels::SsdShape;
using Floats = std::vector<float>;

struct Operands {
  Floats xbc, dt, a_log, d, dt_bias, dy;
};

Floats random_floats(std::int64_t count, float low, float high) {
  static std::uint32_t state = 1;
  Floats values(static_cast<std::size_t>(count));
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = low + (high - low) * static_cast<float>(state >> 8) / 16777216.0F;
  }
  return values;
}

Operands operands_of(const SsdShape& s) {
  return {random_floats(s.tokens() * s.xbc_columns(), -1.0F, 1.0F),
          random_floats(s.tokens() * s.heads, -4.0F, 0.0F),
          random_floats(s.heads, 0.0F, 2.7F),
          random_floats(s.heads, 0.5F, 1.5F),
          random_floats(s.heads, -1.0F, 1.0F),
          random_floats(s.tokens() * s.columns(), -1.0F, 1.0F)};
}

/// One head of the loop. `states` gets h after each token.
struct Loop {
  const SsdShape& s;
  const Operands& in;
  std::int64_t head;
  const float* x(std::int64_t t) const {
    return in.xbc.data() + t * s.xbc_columns() + head * s.head_size;
  }
  const float* b(std::int64_t t) const {
    return in.xbc.data() + t * s.xbc_columns() + s.columns() +
           head / (s.heads / s.groups) * s.state_size;
  }
  const float* c(std::int64_t t) const { return b(t) + s.groups * s.state_size; }
  float step(std::int64_t t) const {
    const auto at = static_cast<std::size_t>(head);
    return std::log1p(
        std::exp(in.dt[static_cast<std::size_t>(t * s.heads + head)] + in.dt_bias[at]));
  }
  float decay(std::int64_t t) const {
    return std::exp(-step(t) * std::exp(in.a_log[static_cast<std::size_t>(head)]));
  }

  void forward(float* y, Floats& states) const {
    const std::int64_t size = s.head_size * s.state_size;
    for (std::int64_t t = 0; t < s.seq_len; ++t) {
      const float kept = decay(t), taken = step(t);
      float* h = states.data() + t * size;
      for (std::int64_t p = 0; p < s.head_size; ++p) {
        float sum = in.d[static_cast<std::size_t>(head)] * x(t)[p];
        for (std::int64_t n = 0; n < s.state_size; ++n) {
          const std::int64_t at = p * s.state_size + n;
          h[at] = (t > 0 ? kept * h[at - size] : 0.0F) + taken * x(t)[p] * b(t)[n];
          sum += h[at] * c(t)[n];
        }
        y[t * s.columns() + head * s.head_size + p] = sum;
      }
    }
  }

  /// Adds to dxbc; returns the sum of the decays' gradients.
  float backward(float* dxbc, const Floats& states) const {
    const std::int64_t size = s.head_size * s.state_size;
    Floats g(static_cast<std::size_t>(size));
    float of_decays = 0.0F;
    for (std::int64_t t = s.seq_len - 1; t >= 0; --t) {
      const float kept = decay(t), taken = step(t);
      float* dx = dxbc + (x(t) - in.xbc.data());
      float* db = dxbc + (b(t) - in.xbc.data());
      float* dc = dxbc + (c(t) - in.xbc.data());
      for (std::int64_t p = 0; p < s.head_size; ++p) {
        const float grad =
            in.dy[static_cast<std::size_t>(t * s.columns() + head * s.head_size + p)];
        for (std::int64_t n = 0; n < s.state_size; ++n) {
          const std::int64_t at = p * s.state_size + n;
          float& of_state = g[static_cast<std::size_t>(at)];
          of_state += grad * c(t)[n];
          dc[n] += grad * states[static_cast<std::size_t>(t * size + at)];
          db[n] += of_state * taken * x(t)[p];
          dx[p] += of_state * taken * b(t)[n];
          of_decays += t > 0 ? of_state * states[static_cast<std::size_t>((t - 1) * size + at)] : 0;
          of_state *= kept;
        }
      }
    }
    return of_decays;
  }
};

/// Of this thread's processor time, so that others on the machine count less.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median_seconds(double seconds, const std::function<void()>& run) {
  run();
  std::vector<double> times;
  const double start = now();
  do {
    const double begin = now();
    run();
    times.push_back(now() - begin);
  } while (times.size() < 3 || now() - start < seconds);
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

void check_equal(const Floats& actual, const Floats& expected) {
  for (std::size_t i = 0; i < actual.size(); ++i)
    if (!(std::fabs(actual[i] - expected[i]) <= 1e-3F * (1.0F + std::fabs(expected[i])))) {
      std::fprintf(stderr, "element %zu is %g, expected %g\n", i, static_cast<double>(actual[i]),
                   static_cast<double>(expected[i]));
      std::exit(1);
    }
}

struct Results {
  Floats y, dxbc, ddt, da_log, states;
};

kernels::SsdForward forward_of(const SsdShape& s, const Operands& in, Results& out) {
  return {.shape = s,
          .xbc = in.xbc.data(),
          .xbc_stride = s.xbc_columns(),
          .dt = in.dt.data(),
          .dt_stride = s.heads,
          .a_log = in.a_log.data(),
          .d = in.d.data(),
          .dt_bias = in.dt_bias.data(),
          .y = out.y.data(),
          .y_stride = s.columns(),
          .states = out.states.data()};
}

kernels::SsdBackward backward_of(const SsdShape& s, const Operands& in, Results& out) {
  return {.shape = s,
          .dy = in.dy.data(),
          .dy_stride = s.columns(),
          .xbc = in.xbc.data(),
          .xbc_stride = s.xbc_columns(),
          .dt = in.dt.data(),
          .dt_stride = s.heads,
          .a_log = in.a_log.data(),
          .d = in.d.data(),
          .dt_bias = in.dt_bias.data(),
          .states = out.states.data(),
          .dxbc = out.dxbc.data(),
          .dxbc_stride = s.xbc_columns(),
          .ddt = out.ddt.data(),
          .ddt_stride = s.heads,
          .da_log = out.da_log.data()};
}

struct Seconds {
  double forward, backward;
};

Seconds kernel_times(const SsdShape& s, const Operands& in, Results& out, double seconds) {
  const auto backend = kernels::make_cpu_backend(1);
  const kernels::SsdForward forward = forward_of(s, in, out);
  const kernels::SsdBackward backward = backward_of(s, in, out);
  const std::int64_t scratch_bytes =
      std::max(backend->scratch_bytes(forward), backend->scratch_bytes(backward));
  void* scratch = backend->allocate(scratch_bytes);
  backend->set_scratch(scratch, scratch_bytes);
  const Seconds times{median_seconds(seconds, [&] { backend->run(forward); }),
                      median_seconds(seconds, [&] { backend->run(backward); })};
  backend->free(scratch);
  return times;
}

/// Times one head, times heads; then fills in the outputs of all.
Seconds loop_times(const SsdShape& s, const Operands& in, Floats& y) {
  Floats dxbc(in.xbc.size());
  Floats states(static_cast<std::size_t>(s.tokens() * s.head_size * s.state_size));
  const Loop first{s, in, 0};
  const auto heads = static_cast<double>(s.heads);
  volatile float sink = 0.0F;
  const Seconds times{
      heads * median_seconds(0.0, [&] { first.forward(y.data(), states); }),
      heads * median_seconds(0.0, [&] { sink = first.backward(dxbc.data(), states); })};
  for (std::int64_t head = 1; head < s.heads; ++head) Loop{s, in, head}.forward(y.data(), states);
  return times;
}

void bench(const char* name, const SsdShape& s, double seconds) {
  const Operands in = operands_of(s);
  const auto outputs = static_cast<std::size_t>(s.tokens() * s.columns());
  Results out{Floats(outputs), Floats(in.xbc.size()), Floats(in.dt.size()),
              Floats(static_cast<std::size_t>(s.heads)),
              Floats(static_cast<std::size_t>(s.num_chunks() * s.state_elements()))};
  const Seconds kernel = kernel_times(s, in, out, seconds);
  Floats loop_y(outputs);
  const Seconds loop = loop_times(s, in, loop_y);
  check_equal(out.y, loop_y);
  const auto tokens = static_cast<double>(s.tokens());
  const auto per_head = static_cast<double>(s.columns() * (s.chunk_size + 4 * s.state_size));
  const auto scores = static_cast<double>(s.groups * s.chunk_size * s.state_size);
  std::printf("| %s | %ld | %.1f | %.1f | %.0f | %.0f | %.1f | %.1f |\n", name,
              static_cast<long>(s.chunk_size), 1e3 * kernel.forward, 1e3 * kernel.backward,
              1e-9 * tokens * (per_head + scores) / kernel.forward,
              1e-9 * tokens * (2.0 * per_head + 3.0 * scores) / kernel.backward, 1e3 * loop.forward,
              1e3 * loop.backward);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 1024;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.5;
  std::printf(
      "| model | chunk | forward ms | backward ms | GFLOP/s | backward GFLOP/s | "
      "loop ms | loop backward ms |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const std::int64_t chunk : {128, 256}) {
    bench("Mamba 2 130M", {1, tokens, 24, 64, 1, 128, chunk}, seconds);
    bench("Nemotron-H 8B, tp 8", {1, tokens, 16, 64, 1, 128, chunk}, seconds);
  }
  return 0;
}
