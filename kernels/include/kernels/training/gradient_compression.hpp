// Gradients made smaller before they travel. What is lost is kept in `error` and added to the next
// gradient (error feedback: Seide et al. 2014; Karimireddy et al. 2019).
#pragma once

#include <cstdint>

namespace meshplan::kernels {

/// In what units errors are kept: gradients are `*applied / *wanted` times as large (fp16: by the
/// loss scale, which changes from step to step). Read when the work runs; null: alike.
struct ErrorUnit {
  const float* applied = nullptr;
  const float* wanted = nullptr;
};

/// With v = gradient + error (in units of the gradient), for each block of `block` elements: scale
/// = max |v| / 127, quantized = v / scale rounded to nearest even, error = v - quantized * scale. A
/// block with a number that is not finite gets scale NaN, 1 at that number and 0 elsewhere.
/// Traffic: 13 bytes an element (5 without error).
struct QuantizeInt8 {
  std::int64_t count = 0;
  int block = 256;  // elements of one scale; the last block may be shorter
  const float* gradient = nullptr;
  float* error = nullptr;  // (count), or null: nothing is kept
  std::int8_t* quantized = nullptr;
  float* scales = nullptr;  // (ceil(count / block))
  ErrorUnit unit = {};
};

/// out (+)= quantized * scale, 0 where quantized is. Traffic: 5 bytes an element, 9 to accumulate.
struct DequantizeInt8 {
  std::int64_t count = 0;
  int block = 256;
  const std::int8_t* quantized = nullptr;
  const float* scales = nullptr;
  float* out = nullptr;
  bool accumulate = false;
};

/// With v = gradient + error (in units of the gradient), for each block of `block` elements: the
/// `keep` elements of largest |v| (ties: the smaller index) in ascending order of index; error = v
/// elsewhere, 0 there. NaN counts as larger than everything. A shorter last block fills up with
/// index -1, value 0. Source: Aji & Heafield 2017, by blocks as in Lin et al. 2018 (section 3).
struct TopKSelect {
  std::int64_t count = 0;
  int block = 1024;  // at most 4096
  int keep = 1;      // at most `block`
  const float* gradient = nullptr;
  float* error = nullptr;           // (count), or null
  std::int32_t* indices = nullptr;  // (ceil(count / block), keep), counted from the range's start
  float* values = nullptr;          // the same shape
  ErrorUnit unit = {};
};

/// out[indices] += values, for indices that are not -1 and all different.
struct TopKScatterAdd {
  std::int64_t count = 0;  // elements of out, above all indices
  std::int64_t entries = 0;
  const std::int32_t* indices = nullptr;
  const float* values = nullptr;
  float* out = nullptr;
};

/// After a step: settled = error; after one that is skipped, whose *gradient_scale is NaN, error =
/// settled, as it was after the last one that counted. Traffic: 8 bytes an element.
struct SettleErrors {
  std::int64_t count = 0;
  float* error = nullptr;
  float* settled = nullptr;
  const float* gradient_scale = nullptr;
};

}  // namespace meshplan::kernels
