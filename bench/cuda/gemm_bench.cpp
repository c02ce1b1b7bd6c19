// The products of a dense layer, with what is fused into them, beside the fastest kernel that
// cuBLASLt offers for the bare product (its first 8 candidates, timed).
#include "support.hpp"

namespace meshplan::bench {

namespace {

using kernels::ActivationKind;
using kernels::CudaBackend;
using kernels::LinearForward;
using kernels::LinearInputGrad;
using kernels::LinearShape;
using kernels::LinearWeightGrad;

/// A micro-batch of 8192 tokens in Llama 2 7B, 70B on 8 tensor-parallel ranks, and GPT-2 small.
constexpr std::array kShapes = {LinearShape{8192, 4096, 12288}, LinearShape{8192, 4096, 22016},
                                LinearShape{8192, 11008, 4096}, LinearShape{8192, 8192, 1280},
                                LinearShape{8192, 8192, 7168},  LinearShape{8192, 3584, 8192},
                                LinearShape{8192, 768, 3072},   LinearShape{8192, 3072, 768}};

class LayerBench {
 public:
  LayerBench(CudaBackend& ours, CudaBackend& best, const LinearShape& shape)
      : ours_(ours),
        best_(best),
        shape_(shape),
        x_(ours, shape.tokens * shape.in_features),
        weight_(ours, shape.out_features * shape.in_features),
        bias_(ours, shape.out_features),
        y_(ours, shape.tokens * shape.out_features),
        kept_(ours, shape.tokens * std::max(shape.in_features, shape.out_features)),
        dweight_(ours, shape.out_features * shape.in_features * 4),
        dbias_(ours, shape.out_features * 4) {}

  void run() {
    const double forward = seconds_of(best_, plain_forward());
    print("forward", seconds_of(ours_, plain_forward()), forward);
    LinearForward fused = plain_forward();
    fused.bias = bias_.data();
    print("forward bias", seconds_of(ours_, fused), forward);
    fused.activation = ActivationKind::GeluTanh;
    fused.pre_activation = kept_.data();
    fused.pre_activation_stride = shape_.out_features;
    print("forward bias gelu", seconds_of(ours_, fused), forward);

    const double input_grad = seconds_of(best_, plain_input_grad());
    print("input grad", seconds_of(ours_, plain_input_grad()), input_grad);
    LinearInputGrad through_gelu = plain_input_grad();
    through_gelu.activation = ActivationKind::GeluTanh;
    through_gelu.pre_activation = kept_.data();
    through_gelu.pre_activation_stride = shape_.in_features;
    print("input grad gelu", seconds_of(ours_, through_gelu), input_grad);

    const double weight_grad = seconds_of(best_, plain_weight_grad());
    LinearWeightGrad op = plain_weight_grad();
    print("weight grad", seconds_of(ours_, op), weight_grad);
    op.accumulate = true;
    print("weight grad +=", seconds_of(ours_, op), weight_grad);
    op.dbias = static_cast<float*>(dbias_.data());
    print("weight grad += bias", seconds_of(ours_, op), weight_grad);
  }

 private:
  LinearForward plain_forward() const {
    return {.shape = shape_,
            .dtype = DType::BF16,
            .x = x_.data(),
            .x_stride = shape_.in_features,
            .weight = weight_.data(),
            .weight_stride = shape_.in_features,
            .y = y_.data(),
            .y_stride = shape_.out_features};
  }
  LinearInputGrad plain_input_grad() const {
    return {.shape = shape_,
            .dtype = DType::BF16,
            .dy = y_.data(),
            .dy_stride = shape_.out_features,
            .weight = weight_.data(),
            .weight_stride = shape_.in_features,
            .dx = x_.data(),
            .dx_stride = shape_.in_features};
  }
  LinearWeightGrad plain_weight_grad() const {
    return {.shape = shape_,
            .dtype = DType::BF16,
            .dy = y_.data(),
            .dy_stride = shape_.out_features,
            .x = x_.data(),
            .x_stride = shape_.in_features,
            .dweight = static_cast<float*>(dweight_.data()),
            .dweight_stride = shape_.in_features};
  }
  void print(const char* what, double seconds, double best) const {
    const double flops = 2.0 * static_cast<double>(shape_.tokens) *
                         static_cast<double>(shape_.in_features) *
                         static_cast<double>(shape_.out_features);
    std::printf(
        "%6lld x %6lld x %6lld  %-20s %9.1f us  %7.1f TFLOP/s  %5.2f of the best bare product\n",
        static_cast<long long>(shape_.tokens), static_cast<long long>(shape_.in_features),
        static_cast<long long>(shape_.out_features), what, seconds * 1e6, flops / seconds / 1e12,
        best / seconds);
  }

  CudaBackend& ours_;
  CudaBackend& best_;
  LinearShape shape_;
  RandomOperand x_, weight_, bias_, y_, kept_;
  Memory dweight_, dbias_;
};

}  // namespace

}  // namespace meshplan::bench

int main() {
  using namespace meshplan;
  if (!bench::has_gpu()) return bench::kSkipped;
  const auto ours = kernels::make_cuda_backend(0);
  const auto best =
      kernels::make_cuda_backend(0, {.stream = ours->stream(), .autotune_gemm = true});
  std::printf("%s, bf16; tokens x in x out\n", ours->name().c_str());
  for (const kernels::LinearShape& shape : bench::kShapes)
    bench::LayerBench(*ours, *best, shape).run();
  return 0;
}
