#include "weights/merged_adapters.hpp"

#include <string_view>
#include <vector>

#include "models/adapters.hpp"
#include "weights/checkpoint_layout.hpp"

namespace meshplan::runtime {
namespace {

/// Part of a matrix, row after row.
std::vector<float> read_matrix(ParameterSource& source, const std::string& name,
                               const TensorBox& box) {
  std::vector<float> values(static_cast<std::size_t>(box.elements()));
  source.read(kWeights, name, {.data = values.data(), .box = box, .strides = {box.size[1], 1}});
  return values;
}

}  // namespace

void MergedAdapters::read(const std::string& state, const std::string& parameter,
                          const TensorTarget& target) {
  source_.read(state, parameter, target);
  constexpr std::string_view kWeight = ".weight";
  if (state != kWeights || !parameter.starts_with("layers.") || !parameter.ends_with(kWeight))
    return;
  const std::string linear = parameter.substr(0, parameter.size() - kWeight.size());
  if (!models::has_adapters(adapters_, models::module_of_weight(linear))) return;

  const std::int64_t rank = adapters_.rank;
  const std::int64_t rows = target.box.size[0], columns = target.box.size[1];
  const std::vector<float> a =
      read_matrix(source_, linear + ".lora_a.weight",
                  {.begin = {0, target.box.begin[1]}, .size = {rank, columns}});
  const std::vector<float> b =
      read_matrix(source_, linear + ".lora_b.weight",
                  {.begin = {target.box.begin[0], 0}, .size = {rows, rank}});
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (std::int64_t r = 0; r < rank; ++r)
        sum += static_cast<double>(b[static_cast<std::size_t>(row * rank + r)]) *
               a[static_cast<std::size_t>(r * columns + column)];
      float& weight = target.data[row * target.strides[0] + column * target.strides[1]];
      weight = static_cast<float>(weight + adapters_.scale() * sum);
    }
}

}  // namespace meshplan::runtime
