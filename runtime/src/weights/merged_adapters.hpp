// Weights with their adapters in them, for readers that know none.
#pragma once

#include "models/model_spec.hpp"
#include "runtime/weights/parameter_source.hpp"

namespace meshplan::runtime {

/// W + alpha / rank * B A in place of W (Hu et al. 2021, LoRA, section 4.1), summed in double.
class MergedAdapters final : public ParameterSource {
 public:
  /// Both must outlive it.
  MergedAdapters(ParameterSource& source, const models::AdapterSpec& adapters)
      : source_(source), adapters_(adapters) {}

  void read(const std::string& state, const std::string& parameter,
            const TensorTarget& target) override;

 private:
  ParameterSource& source_;
  const models::AdapterSpec& adapters_;
};

}  // namespace meshplan::runtime
