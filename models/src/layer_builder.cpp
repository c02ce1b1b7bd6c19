#include "layer_builder.hpp"

#include <utility>

#include "models/adapters.hpp"

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
  const TensorId id = tensor("x", TensorClass::Activation, {tokens(), fixed(stream_width(spec_))});
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

TensorId LayerBuilder::product(const LinearShape& shape, TensorId x) {
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
  added.attributes.detached = shape.detached;
  added.parameters.push_back(
      parameter(shape.weight + ".weight", std::move(weight_shape), shape.init));
  if (shape.bias)
    added.parameters.push_back(
        parameter(shape.weight + ".bias", std::move(bias_shape), Init::Zeros));
  for (const TensorId id : added.parameters) set_sections(id, shape.sections, shape.head_size);
  return output(added, {row_count, fixed(shape.out)}, shape.sections, shape.head_size);
}

TensorId LayerBuilder::linear(const LinearShape& shape, TensorId x) {
  const TensorId y = product(shape, x);
  return spec_.adapters ? with_adapters(shape, x, y) : y;
}

TensorId LayerBuilder::adapter(const LinearShape& shape, TensorId x) {
  const AdapterSpec& adapters = *spec_.adapters;
  // A is cut where it reads what tp cuts, B where the linear's output is cut.
  const TensorId low = product({.name = shape.name + ".lora_a",
                                .weight = shape.weight + ".lora_a",
                                .out = adapters.rank,
                                .split = shape.split == Split::Row ? Split::Row : Split::None,
                                .num_experts = shape.num_experts,
                                .detached = shape.detached},
                               x);
  TensorId scaled = low;
  if (adapters.scale() != 1) {
    const std::vector<Dim> low_shape{rows(low), fixed(width(low))};
    Op& scale = op(OpKind::Scale, shape.name + ".lora_scale", {low});
    scale.attributes.scale = adapters.scale();
    scaled = output(scale, low_shape);
  }
  LinearShape up = shape;
  up.name += ".lora_b";
  up.weight += ".lora_b";
  up.split = shape.split == Split::Column ? Split::Column : Split::None;
  up.bias = false;
  up.detached = false;  // what it reads, lora_a is trained by
  up.init = Init::Zeros;
  const TensorId y = product(up, scaled);
  at(graph_.ops.back().parameters.front()).weight_decay = true;
  return y;
}

TensorId LayerBuilder::with_adapters(const LinearShape& shape, TensorId x, TensorId y) {
  const std::string module = module_of_weight(shape.weight);
  if (has_adapters(*spec_.adapters, module)) {
    const TensorId sum = add(shape.name + ".lora_add", y, adapter(shape, x));
    set_sections(sum, shape.sections, shape.head_size);
    return sum;
  }
  const std::vector<std::string> parts = parts_of_module(module);
  std::vector<TensorId> operands{y};
  for (std::size_t i = 0; i < parts.size() && parts.size() == shape.sections.size(); ++i) {
    if (!has_adapters(*spec_.adapters, parts[i])) continue;
    LinearShape part = shape;
    part.name += "." + parts[i];
    part.weight.replace(part.weight.size() - module.size(), module.size(), parts[i]);
    part.out = shape.sections[i];
    part.sections.clear();
    operands.push_back(adapter(part, x));
  }
  if (operands.size() == 1) return y;
  const std::vector<Dim> whole{rows(y), fixed(width(y))};
  return output(op(OpKind::AddSections, shape.name + ".lora_add", std::move(operands)), whole,
                shape.sections, shape.head_size);
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
  if (layer_norm && spec_.norm_bias)
    added.parameters.push_back(parameter(weight + ".bias", {size}, Init::Zeros));
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

TensorId LayerBuilder::scale(const std::string& name, TensorId x, double factor) {
  const std::vector<Dim> shape{rows(x), fixed(width(x))};
  Op& added = op(OpKind::Scale, name, {x});
  added.attributes.scale = factor;
  return output(added, shape);
}

}  // namespace meshplan::models
