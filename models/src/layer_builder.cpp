#include "layer_builder.hpp"

#include <utility>

namespace meshplan::models {

TensorId LayerBuilder::tensor(std::string name, TensorClass tensor_class, std::vector<Dim> shape,
                              std::vector<std::int64_t> sections) {
  graph_.tensors.push_back({.name = std::move(name),
                            .tensor_class = tensor_class,
                            .shape = std::move(shape),
                            .sections = std::move(sections)});
  return static_cast<TensorId>(graph_.tensors.size()) - 1;
}

TensorId LayerBuilder::parameter(std::string name, std::vector<Dim> shape, Init init,
                                 std::vector<std::int64_t> sections) {
  const TensorId id =
      tensor(std::move(name), TensorClass::Parameter, std::move(shape), std::move(sections));
  at(id).init = init;
  at(id).weight_decay = init == Init::Normal || init == Init::ScaledNormal;
  return id;
}

TensorId LayerBuilder::input() {
  const TensorId id = tensor("x", TensorClass::Activation, {tokens(), fixed(spec_.hidden_size)});
  graph_.input = id;
  return id;
}

Op& LayerBuilder::op(OpKind kind, std::string name, std::vector<TensorId> inputs) {
  Op& added = graph_.ops.emplace_back();
  added.kind = kind;
  added.name = std::move(name);
  added.inputs = std::move(inputs);
  added.modules = modules_;
  return added;
}

TensorId LayerBuilder::output(Op& op, std::vector<Dim> shape, std::vector<std::int64_t> sections,
                              std::int64_t head_size) {
  const TensorId id =
      tensor(op.name, TensorClass::Activation, std::move(shape), std::move(sections));
  at(id).head_size = head_size;
  op.outputs.push_back(id);
  return id;
}

void LayerBuilder::set_sections(TensorId id, std::vector<std::int64_t> sections,
                                std::int64_t head_size) {
  at(id).sections = std::move(sections);
  at(id).head_size = head_size;
}

TensorId LayerBuilder::statistic(Op& op, std::string_view suffix, std::vector<Dim> shape) {
  const TensorId id =
      tensor(op.name + "." + std::string(suffix), TensorClass::Statistic, std::move(shape));
  op.outputs.push_back(id);
  return id;
}

TensorId LayerBuilder::linear(const LinearShape& shape, TensorId x) {
  const bool grouped = shape.num_experts > 0;
  const Dim row_count = rows(x);
  std::vector<Dim> weight_shape{fixed(shape.out), fixed(width(x))};
  std::vector<Dim> bias_shape{fixed(shape.out)};
  if (grouped) {
    weight_shape.insert(weight_shape.begin(), fixed(shape.num_experts));
    bias_shape.insert(bias_shape.begin(), fixed(shape.num_experts));
  }
  Op& added = op(grouped ? OpKind::GroupedLinear : OpKind::Linear, shape.name, {x});
  added.split = shape.split;
  added.attributes.num_experts = shape.num_experts;
  added.parameters.push_back(
      parameter(shape.weight + ".weight", std::move(weight_shape), shape.init));
  if (shape.bias)
    added.parameters.push_back(
        parameter(shape.weight + ".bias", std::move(bias_shape), Init::Zeros));
  for (const TensorId id : added.parameters) set_sections(id, shape.sections, shape.head_size);
  return output(added, {row_count, fixed(shape.out)}, shape.sections, shape.head_size);
}

TensorId LayerBuilder::norm(const std::string& name, const std::string& weight, TensorId x,
                            std::optional<double> epsilon) {
  const bool layer_norm = spec_.norm == Norm::LayerNorm;
  const Dim row_count = rows(x);
  const Dim size = fixed(width(x));
  Op& added = op(layer_norm ? OpKind::LayerNorm : OpKind::RmsNorm, name, {x});
  added.modules.add(Module::Norms);
  added.attributes.epsilon = epsilon.value_or(spec_.norm_epsilon);
  added.parameters.push_back(parameter(weight + ".weight", {size}, Init::Ones));
  if (layer_norm) added.parameters.push_back(parameter(weight + ".bias", {size}, Init::Zeros));
  const TensorId y = output(added, {row_count, size});
  if (layer_norm) {
    statistic(added, "mean", {row_count});
    statistic(added, "inv_std", {row_count});
  } else {
    statistic(added, "inv_rms", {row_count});
  }
  return y;
}

TensorId LayerBuilder::add(const std::string& name, TensorId a, TensorId b) {
  const std::vector<Dim> shape{rows(a), fixed(width(a))};
  return output(op(OpKind::Add, name, {a, b}), shape);
}

}  // namespace meshplan::models
