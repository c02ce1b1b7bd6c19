#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "core/index.hpp"
#include "core/json_fields.hpp"
#include "models/counts.hpp"
#include "program/checks/check.hpp"
#include "program/plan/plan.hpp"
#include "reports/catalog_report.hpp"
#include "reports/search_report.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using models::LayerGraph;
using models::ModelGraph;
using models::ModelSpec;

// FLOPs per token are shown for one full sequence; MoE rows are those that the router sends here.
struct LayerView {
  std::string name;
  const LayerGraph* graph = nullptr;
  int copies = 1;
};

std::vector<LayerView> layers_of(const ModelGraph& graph) {
  std::vector<LayerView> views{{"embedding", &graph.embedding, 1}};
  for (std::size_t kind = 0; kind < graph.kinds.size(); ++kind) {
    const auto copies = std::ranges::count(graph.layer_kind, static_cast<int>(kind));
    views.push_back({graph.kinds[kind].name, &graph.kinds[kind], static_cast<int>(copies)});
  }
  views.push_back({"head", &graph.head, 1});
  return views;
}

std::int64_t sequence_length(const ModelSpec& model) {
  return std::max(1, model.max_positions);
}

models::SymbolValues one_sequence(const ModelSpec& model) {
  const std::int64_t tokens = sequence_length(model);
  return {
      .tokens = tokens, .sequences = 1, .routed_tokens = model.moe ? tokens * model.moe->top_k : 0};
}

std::string dimension(const models::Dim& dim) {
  constexpr const char* kSymbols[] = {"", "T", "B", "R"};
  const char* symbol = kSymbols[static_cast<int>(dim.symbol)];
  std::string text = *symbol == 0     ? std::to_string(dim.count)
                     : dim.count == 1 ? std::string(symbol)
                                      : fmt::format("{}{}", dim.count, symbol);
  if (dim.divisor > 1) text += fmt::format("/{}", dim.divisor);
  return text;
}

std::string shape(const models::Tensor& tensor) {
  std::vector<std::string> dims;
  for (const models::Dim& dim : tensor.shape) dims.push_back(dimension(dim));
  return fmt::format("({})", fmt::join(dims, ", "));
}

std::int64_t parameters_of(const models::Op& op, const LayerGraph& layer) {
  std::int64_t total = 0;
  for (const models::TensorId id : op.parameters) {
    std::int64_t elements = 1;
    for (const models::Dim& dim : layer.tensors[at(id)].shape)
      elements *= models::evaluate(dim, {});
    total += elements;
  }
  return total;
}

Table operations_table(const LayerGraph& layer, const ModelSpec& model) {
  Table table{
      .columns = {
          {"operation", Align::Left}, {"output", Align::Left}, {"parameters"}, {"FLOPs/token"}}};
  const models::SymbolValues values = one_sequence(model);
  const auto tokens = static_cast<double>(values.tokens);
  for (const models::Op& op : layer.ops) {
    const double flops =
        models::forward_flops(op, layer, values, sequence_length(model)).value / tokens;
    const std::int64_t parameters = parameters_of(op, layer);
    table.rows.push_back({op.name, shape(layer.tensors[at(op.outputs[0])]),
                          parameters > 0 ? grouped(parameters) : "",
                          flops > 0 ? short_count(flops) : ""});
  }
  return table;
}

/// Lists of layers and vocabularies of labels would fill the screen.
std::string shortened(const std::string& value) {
  constexpr std::size_t kMost = 48;
  return value.size() <= kMost ? value : value.substr(0, kMost - 3) + "...";
}

Json summary(const ModelSpec& model) {
  const models::ParameterCounts counts = models::count_parameters(models::build_graph(model));
  const std::string reason = not_lowered_because(model);
  return {{"name", model.name},
          {"parameters", counts.total},
          {"active_parameters", counts.active},
          {"num_layers", model.num_layers},
          {"hidden_size", model.hidden_size},
          {"can_be_planned", reason.empty()},
          {"reason", reason}};
}

}  // namespace

std::string not_lowered_because(const ModelSpec& model) {
  program::Plan plan;
  plan.model = model;
  plan.workload = {.seq_len = 1, .global_batch_size = 1};
  for (const program::Violation& violation : program::check(plan))
    if (violation.rule == "not-lowered") return violation.message;
  return "";
}

std::string models_text(const std::vector<ModelSpec>& models) {
  Table table{.columns = {{"model", Align::Left},
                          {"parameters"},
                          {"active"},
                          {"layers"},
                          {"hidden"},
                          {"heads"},
                          {"kv"},
                          {"vocabulary"},
                          {"positions"},
                          {"runs", Align::Left}}};
  std::map<std::string, std::vector<std::string>> refused;  // names, by the reason
  for (const ModelSpec& model : models) {
    const std::string reason = not_lowered_because(model);
    if (!reason.empty()) refused[reason.substr(model.name.size() + 2)].push_back(model.name);
    const models::ParameterCounts counts = models::count_parameters(models::build_graph(model));
    table.rows.push_back({model.name, short_count(static_cast<double>(counts.total)),
                          short_count(static_cast<double>(counts.active)),
                          std::to_string(model.num_layers), std::to_string(model.hidden_size),
                          std::to_string(model.num_heads), std::to_string(model.num_kv_heads),
                          grouped(model.vocab_size), grouped(model.max_positions),
                          reason.empty() ? "yes" : "no"});
  }
  std::string text = to_text(table);
  for (const auto& [reason, names] : refused)
    text += fmt::format("\ndoes not run: {}\n  {}\n", fmt::join(names, ", "), reason);
  return text;
}

std::string models_json(const std::vector<ModelSpec>& models) {
  Json list = Json::array();
  for (const ModelSpec& model : models) list.push_back(summary(model));
  return Json{{"schema_version", 1}, {"models", std::move(list)}}.dump(2) + "\n";
}

std::string import_text(const models::ImportedModel& model) {
  std::string text;
  std::vector<std::string> read;
  for (const models::ReadKey& key : model.read)
    read.push_back(fmt::format("{} = {}", key.key, shortened(key.value)));
  if (!read.empty()) text += fmt::format("read     {}\n", fmt::join(read, ", "));
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const models::IgnoredKey& key : model.ignored)
    by_reason[key.reason].push_back(fmt::format("{} = {}", key.key, shortened(key.value)));
  for (const auto& [reason, keys] : by_reason)
    text += fmt::format("ignored  {}: {}\n", fmt::join(keys, ", "), reason);
  for (const std::string& assumption : model.assumptions) text += "assumed  " + assumption + "\n";
  return text;
}

std::string model_text(const models::ImportedModel& imported) {
  const ModelSpec& model = imported.spec;
  const ModelGraph graph = models::build_graph(model);
  std::string text = model_line(model) + "\n" + import_text(imported);
  if (const std::string reason = not_lowered_because(model); !reason.empty())
    text += "does not run: " + reason + "\n";
  const std::int64_t seq_len = sequence_length(model);
  text += fmt::format(
      "training: {} FLOPs a token at {} tokens a sequence (forward and backward, causal half)\n",
      short_count(models::model_flops_per_token(graph, seq_len).value), grouped(seq_len));
  text += "T tokens, B sequences, R routed tokens of a micro-batch; FLOPs are forward\n";
  for (const LayerView& view : layers_of(graph)) {
    text += fmt::format("\n{}{}: {} parameters\n", view.name,
                        view.copies > 1 ? fmt::format(" x {}", view.copies) : std::string(),
                        grouped(models::parameter_count(*view.graph)));
    text += to_text(operations_table(*view.graph, model), 2);
  }
  return text;
}

std::string model_json(const models::ImportedModel& imported) {
  const ModelSpec& model = imported.spec;
  const ModelGraph graph = models::build_graph(model);
  const models::SymbolValues values = one_sequence(model);
  Json layers = Json::array();
  for (const LayerView& view : layers_of(graph)) {
    Json operations = Json::array();
    for (const models::Op& op : view.graph->ops)
      operations.push_back(
          {{"name", op.name},
           {"parameters", parameters_of(op, *view.graph)},
           {"forward_flops_per_token",
            models::forward_flops(op, *view.graph, values, sequence_length(model)).value /
                static_cast<double>(values.tokens)}});
    layers.push_back({{"name", view.name},
                      {"copies", view.copies},
                      {"parameters", models::parameter_count(*view.graph)},
                      {"operations", std::move(operations)}});
  }
  Json root = summary(model);
  root["assumed"] = imported.assumptions;
  root["read"] = Json::object();
  for (const models::ReadKey& key : imported.read) root["read"][key.key] = Json::parse(key.value);
  root["ignored"] = Json::array();
  for (const models::IgnoredKey& key : imported.ignored)
    root["ignored"].push_back(
        {{"key", key.key}, {"value", Json::parse(key.value)}, {"reason", key.reason}});
  root["seq_len"] = sequence_length(model);
  root["layers"] = std::move(layers);
  root["spec"] = Json::parse(models::to_json(model));
  return root.dump(2) + "\n";
}

}  // namespace meshplan::reports
