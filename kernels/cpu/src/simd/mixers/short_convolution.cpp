#include "kernels/mixers/short_convolution.hpp"

#include "simd/activation_functions.hpp"
#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

// Channels of a tile and tokens of a block are walked a vector of channels at a time, so that what
// a channel's next token needs stays in registers; a tile's rows are 512 bytes or more, a block of
// them fits into L2.
constexpr int64_t kTileChannels = 256;
constexpr int64_t kTileVecs = kTileChannels / kLanes;
constexpr int64_t kBlockTokens = 64;  // of a partial sum, too

/// What the taps of a tile's channels are multiplied by: weights[d] is that of the token d before.
struct TileWeights {
  float weights[kMaxConvolutionTaps][kTileChannels];
  float bias[kTileChannels];
};

template <class T, class Op>
TileWeights tile_weights(const Op& op, int64_t first, int64_t count) {
  TileWeights tile;
  const int64_t taps = op.shape.taps;
  const T* weight = static_cast<const T*>(op.weight) + first * taps;
  const T* bias = static_cast<const T*>(op.bias);
  for (int64_t c = 0; c < kTileChannels; ++c) {
    for (int64_t d = 0; d < taps; ++d)
      tile.weights[d][c] = c < count ? load(weight + c * taps + taps - 1 - d, Tail{1})[0] : 0.0F;
    tile.bias[c] = bias != nullptr && c < count ? load(bias + first + c, Tail{1})[0] : 0.0F;
  }
  return tile;
}

/// The number of taps on tokens before its own that each token of a block has.
struct TokensBefore {
  uint8_t count[kBlockTokens];
  template <class Op>
  TokensBefore(const Op& op, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t before = tokens_before(t, op.shape.seq_len, op.positions);
      const int64_t most = op.shape.taps - 1;
      count[t - begin] = static_cast<uint8_t>(before < most ? before : most);
    }
  }
};

/// A vector of channels at one token: x[d] is that of the token d before.
template <int taps>
struct Window {
  Vec weights[taps];
  Vec bias;
  Vec x[taps];

  Window(const TileWeights& tile, int64_t channel) : bias(load(tile.bias + channel)), x{} {
    for (int d = 0; d < taps; ++d) weights[d] = load(tile.weights[d] + channel);
  }
  MESHPLAN_INLINE void advance(Vec next) {
    for (int d = taps - 1; d > 0; --d) x[d] = x[d - 1];
    x[0] = next;
  }
  MESHPLAN_INLINE Vec pre_activation(int before) const {
    Vec sum = bias + weights[0] * x[0];
    if (before == taps - 1) {
      for (int d = 1; d < taps; ++d) sum += weights[d] * x[d];
    } else {
      for (int d = 1; d < taps && d <= before; ++d) sum += weights[d] * x[d];
    }
    return sum;
  }
};

template <class Body>
MESHPLAN_INLINE void with_taps(int taps, Body body) {
  static_assert(kMaxConvolutionTaps == 4);
  switch (taps) {
    case 1:
      return body(Count<1>{});
    case 2:
      return body(Count<2>{});
    case 3:
      return body(Count<3>{});
    default:
      return body(Count<4>{});
  }
}

/// Calls body(first channel, channels) for the tiles of a range.
template <class Body>
MESHPLAN_INLINE void for_each_tile(Range channels, Body body) {
  for (int64_t first = channels.begin; first < channels.end; first += kTileChannels)
    body(first, channels.end - first < kTileChannels ? channels.end - first : kTileChannels);
}
/// Calls body(begin, end) for the blocks of a range of tokens.
template <class Body>
MESHPLAN_INLINE void for_each_block(Range tokens, Body body) {
  for (int64_t begin = tokens.begin; begin < tokens.end; begin += kBlockTokens)
    body(begin, tokens.end - begin < kBlockTokens ? tokens.end : begin + kBlockTokens);
}

template <class T, int taps>
void forward(const ShortConvolutionForward& op, Range tokens) {
  const T* x = static_cast<const T*>(op.x);
  T* y = static_cast<T*>(op.y);
  for_each_tile({0, op.shape.channels}, [&](int64_t first, int64_t channels) {
    const TileWeights tile = tile_weights<T>(op, first, channels);
    for_each_block(tokens, [&](int64_t begin, int64_t end) {
      const TokensBefore before(op, begin, end);
      for_each_vec(0, channels, [&](int64_t i, auto part) {
        Window<taps> window(tile, i);
        for (int64_t t = begin < taps ? 0 : begin - taps + 1; t < begin; ++t)
          window.advance(load(x + t * op.x_stride + first + i, part));
        for (int64_t t = begin; t < end; ++t) {
          window.advance(load(x + t * op.x_stride + first + i, part));
          const Vec pre = window.pre_activation(before.count[t - begin]);
          store(y + t * op.y_stride + first + i,
                op.shape.silu ? evaluate<ActivationKind::Silu>(pre).value : pre, part);
        }
      });
    });
  });
}

/// Gradients of a vector of channels at one token: x[d] is that of the input d tokens before, which
/// later tokens add to as well.
template <int taps>
struct Gradients {
  Vec x[taps];
  Vec weights[taps];
  Vec bias;

  MESHPLAN_INLINE void advance() {
    for (int d = taps - 1; d > 0; --d) x[d] = x[d - 1];
    x[0] = Vec{};
  }
  MESHPLAN_INLINE void add(const Window<taps>& window, Vec dpre, int before) {
    bias += dpre;
    if (before == taps - 1) {
      for (int d = 0; d < taps; ++d) add_tap(window, dpre, d);
    } else {
      for (int d = 0; d < taps && d <= before; ++d) add_tap(window, dpre, d);
    }
  }
  MESHPLAN_INLINE void add_tap(const Window<taps>& window, Vec dpre, int d) {
    weights[d] += dpre * window.x[d];
    x[d] += dpre * window.weights[d];
  }
};

/// What goes from a block to the next: inputs before it, their gradients so far, and the sums.
template <int taps>
struct TileState {
  Vec x[kTileVecs][taps] = {};
  Vec dx[kTileVecs][taps] = {};
  Vec dweights[kTileVecs][taps] = {};
  Vec dbias[kTileVecs] = {};
};

/// One vector of channels of one block.
template <class T, int taps, class Part>
MESHPLAN_INLINE void backward_block(const ShortConvolutionBackward& op, TileState<taps>& state,
                                    const TileWeights& tile, const TokensBefore& before,
                                    Range tokens, int64_t first, int64_t i, Part part) {
  const T* x = static_cast<const T*>(op.x) + first + i;
  const T* dy = static_cast<const T*>(op.dy) + first + i;
  T* dx = static_cast<T*>(op.dx);
  const int64_t v = i / kLanes;
  Window<taps> window(tile, i);
  Gradients<taps> gradients{};
  for (int d = 0; d < taps; ++d) window.x[d] = state.x[v][d];
  for (int d = 0; d < taps; ++d) gradients.x[d] = state.dx[v][d];
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const int taps_before = before.count[t - tokens.begin];
    window.advance(load(x + t * op.x_stride, part));
    gradients.advance();
    const Vec grad = load(dy + t * op.dy_stride, part);
    const Vec dpre =
        op.shape.silu
            ? grad * evaluate<ActivationKind::Silu>(window.pre_activation(taps_before)).slope
            : grad;
    gradients.add(window, dpre, taps_before);
    if (dx != nullptr && t >= taps - 1)
      store(dx + (t - taps + 1) * op.dx_stride + first + i, gradients.x[taps - 1], part);
  }
  for (int d = 0; d < taps; ++d) state.x[v][d] = window.x[d];
  for (int d = 0; d < taps; ++d) state.dx[v][d] = gradients.x[d];
  for (int d = 0; d < taps; ++d) state.dweights[v][d] += gradients.weights[d];
  state.dbias[v] += gradients.bias;
}

/// The inputs that no later token adds to any more, and the sums.
template <class T, int taps>
void finish_tile(const ShortConvolutionBackward& op, const TileState<taps>& state, int64_t first,
                 int64_t channels) {
  T* dx = static_cast<T*>(op.dx);
  for_each_vec(0, channels, [&](int64_t i, auto part) {
    if (dx == nullptr) return;
    for (int64_t d = 0; d < taps - 1 && d < op.shape.tokens; ++d)
      store(dx + (op.shape.tokens - 1 - d) * op.dx_stride + first + i, state.dx[i / kLanes][d],
            part);
  });
  const auto put = [&](float* out, float sum) { *out = op.accumulate ? *out + sum : sum; };
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t v = c / kLanes;
    for (int d = 0; d < taps && op.dweight != nullptr; ++d)
      put(op.dweight + (first + c) * taps + taps - 1 - d, state.dweights[v][d][c % kLanes]);
    if (op.dbias != nullptr) put(op.dbias + first + c, state.dbias[v][c % kLanes]);
  }
}

template <class T, int taps>
void backward(const ShortConvolutionBackward& op, Range all) {
  for_each_tile(all, [&](int64_t first, int64_t channels) {
    const TileWeights tile = tile_weights<T>(op, first, channels);
    TileState<taps> state;
    for_each_block({0, op.shape.tokens}, [&](int64_t begin, int64_t end) {
      const TokensBefore before(op, begin, end);
      for_each_vec(0, channels, [&](int64_t i, auto part) {
        backward_block<T, taps>(op, state, tile, before, {begin, end}, first, i, part);
      });
    });
    finish_tile<T, taps>(op, state, first, channels);
  });
}

}  // namespace

void short_convolution_forward(const ShortConvolutionForward& op, Range tokens) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    with_taps(op.shape.taps, [&](auto taps) { forward<T, decltype(taps)::value>(op, tokens); });
  });
}
void short_convolution_backward(const ShortConvolutionBackward& op, Range channels) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    with_taps(op.shape.taps, [&](auto taps) { backward<T, decltype(taps)::value>(op, channels); });
  });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
