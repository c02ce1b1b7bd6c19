#include "sim/published_table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <sstream>

#include "core/error.hpp"

namespace meshplan::sim {
namespace {

using Cells = std::vector<std::string>;

/// RFC 4180: quoted cells may hold commas, quotes (doubled) and line breaks.
std::vector<Cells> parse_csv(std::string_view text, const std::string& file) {
  std::vector<Cells> rows;
  Cells row;
  std::string cell;
  bool quoted = false, any = false;
  const auto end_cell = [&] {
    row.push_back(std::move(cell));
    cell.clear();
  };
  const auto end_row = [&] {
    if (!any && cell.empty() && row.empty()) return;
    end_cell();
    rows.push_back(std::move(row));
    row.clear();
    any = false;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"')
        cell += c;
      else if (i + 1 < text.size() && text[i + 1] == '"')
        cell += text[++i];
      else
        quoted = false;
    } else if (c == '"') {
      quoted = any = true;
    } else if (c == ',') {
      any = true;
      end_cell();
    } else if (c == '\n') {
      end_row();
    } else if (c != '\r') {
      any = true;
      cell += c;
    }
  }
  if (quoted) throw ConfigError(fmt::format("{}: a quoted cell is not closed", file));
  end_row();
  return rows;
}

const std::vector<std::string> kColumns{"id",
                                        "family",
                                        "suite",
                                        "source",
                                        "cluster",
                                        "software",
                                        "model",
                                        "layers",
                                        "hidden",
                                        "ffn_hidden",
                                        "heads",
                                        "kv_heads",
                                        "head_dim",
                                        "vocab",
                                        "activation",
                                        "experts",
                                        "topk",
                                        "moe_ffn_hidden",
                                        "shared_expert_ffn",
                                        "arch_notes",
                                        "seq_len",
                                        "num_gpus",
                                        "tp",
                                        "pp",
                                        "vpp",
                                        "cp",
                                        "ep",
                                        "etp",
                                        "dp",
                                        "zero_stage",
                                        "sequence_parallel",
                                        "micro_batch_size",
                                        "global_batch_size",
                                        "precision",
                                        "recompute",
                                        "attention",
                                        "overlap",
                                        "switches",
                                        "step_time_s",
                                        "step_time_basis",
                                        "peak_mem_gib",
                                        "peak_mem_kind",
                                        "notes"};

/// One row by column name. Errors name the column, the value and what was expected.
class Row {
 public:
  Row(const std::map<std::string, std::size_t>& columns, const Cells& cells)
      : columns_(columns), cells_(cells) {}

  const std::string& text(const std::string& column) const {
    static const std::string empty;
    const std::size_t index = columns_.at(column);
    return index < cells_.size() ? cells_[index] : empty;
  }

  bool has(const std::string& column) const { return !text(column).empty(); }

  int integer(const std::string& column, std::optional<int> fallback = std::nullopt) const {
    const std::string& value = text(column);
    if (value.empty() && fallback) return *fallback;
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 1)
      throw ConfigError(fmt::format("{}: '{}' is not a positive whole number", column, value));
    return number;
  }

  std::optional<double> number(const std::string& column) const {
    const std::string& value = text(column);
    if (value.empty()) return std::nullopt;
    double parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error != std::errc() || end != value.data() + value.size() || !(parsed > 0))
      throw ConfigError(fmt::format("{}: '{}' is not a positive number", column, value));
    return parsed;
  }

 private:
  const std::map<std::string, std::size_t>& columns_;
  const Cells& cells_;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

template <class T, std::size_t N>
T choose(const std::string& column, const std::string& value,
         const std::array<std::pair<const char*, T>, N>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, result] : choices) {
    if (value == name) return result;
    names.emplace_back(name);
  }
  throw ConfigError(fmt::format("{}: {}", column, unknown_name_message("value", value, names)));
}

/// "512" after `key` in "MLA q_lora1536 kv_lora512; first layer dense".
std::optional<int> number_after(const std::string& text, const std::string& key) {
  const auto found = text.find(key);
  if (found == std::string::npos) return std::nullopt;
  const char* begin = text.data() + found + key.size();
  while (begin < text.data() + text.size() && (*begin == ' ' || *begin == '=')) ++begin;
  int number = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

bool mentions(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

/// The architecture that goes with an activation in decoder models: GELU came with layer norms,
/// biases, learned positions and tied embeddings (GPT-2, GPT-3), SwiGLU with RMS norms and rotary
/// positions (Llama), squared ReLU with layer norms and rotary positions (Nemotron-4).
void set_family(const std::string& activation, models::ModelSpec& spec) {
  using models::ActivationKind;
  if (activation == "gelu") {
    spec.mlp = models::Mlp::Plain;
    spec.activation = ActivationKind::Gelu;
    spec.norm = models::Norm::LayerNorm;
    spec.positions = models::Positions::Learned;
    spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
    spec.tied_embeddings = true;
  } else if (activation == "squared_relu") {
    spec.mlp = models::Mlp::Plain;
    spec.activation = ActivationKind::SquaredRelu;
    spec.norm = models::Norm::LayerNorm;
  } else if (activation == "swiglu") {
    spec.activation = ActivationKind::Silu;
  } else if (activation == "gated_gelu") {
    spec.activation = ActivationKind::Gelu;
  } else {
    const std::vector<std::string> known{"gelu", "gated_gelu", "squared_relu", "swiglu"};
    throw ConfigError(
        fmt::format("activation: {}", unknown_name_message("value", activation, known)));
  }
}

void set_experts(const Row& row, models::ModelSpec& spec) {
  if (!row.has("experts")) return;
  models::MoeSpec moe;
  moe.num_experts = row.integer("experts");
  moe.top_k = row.integer("topk");
  moe.expert_ffn_size = row.integer("moe_ffn_hidden");
  if (row.has("shared_expert_ffn")) {
    // Given per expert or for all of them together; 0 = none.
    if (row.text("shared_expert_ffn") != "0")
      moe.shared_expert_ffn_size = row.integer("shared_expert_ffn");
  }
  const std::string& notes = row.text("arch_notes");
  int dense = 0;
  if (mentions(notes, "first layer dense")) dense = 1;
  if (const auto n = number_after(notes, "first ")) dense = *n;
  for (int layer = 0; layer < std::min(dense, spec.num_layers - 1); ++layer)
    moe.dense_layers.push_back(layer);
  if (moe.dense_layers.empty()) spec.ffn_size = 0;
  spec.moe = moe;
}

void set_latent_attention(const Row& row, models::ModelSpec& spec) {
  const std::string& notes = row.text("arch_notes");
  if (!mentions(notes, "MLA")) return;
  models::MlaSpec mla;
  mla.kv_lora_rank = number_after(notes, "kv_lora").value_or(512);
  if (const auto q = number_after(notes, "q_lora")) mla.q_lora_rank = *q;
  mla.qk_rope_head_size = number_after(notes, "rope").value_or(spec.head_size / 3);
  mla.qk_nope_head_size = spec.head_size - mla.qk_rope_head_size;
  mla.v_head_size = mla.qk_nope_head_size;
  spec.mla = mla;
  spec.num_kv_heads = spec.num_heads;
}

void set_windows(const Row& row, models::ModelSpec& spec) {
  const std::string& notes = row.text("arch_notes");
  if (!mentions(notes, "window")) return;
  const auto window = number_after(notes, "window");
  if (!window) return;
  spec.window = *window;
  // "every 2nd", "5:1" or all layers.
  if (mentions(notes, "alternat") || mentions(notes, "every 2nd"))
    spec.layer_pattern = {models::LayerAttention::Sliding, models::LayerAttention::Full};
  else if (mentions(notes, "5:1"))
    spec.layer_pattern = {models::LayerAttention::Sliding, models::LayerAttention::Sliding,
                          models::LayerAttention::Sliding, models::LayerAttention::Sliding,
                          models::LayerAttention::Sliding, models::LayerAttention::Full};
  else
    spec.layer_pattern = {models::LayerAttention::Sliding};
}

models::ModelSpec model_of(const Row& row) {
  models::ModelSpec spec;
  spec.name = "published";
  spec.num_layers = row.integer("layers");
  spec.hidden_size = row.integer("hidden");
  spec.num_heads = row.integer("heads");
  spec.num_kv_heads = row.integer("kv_heads", spec.num_heads);
  spec.head_size = row.integer("head_dim", spec.hidden_size / spec.num_heads);
  spec.vocab_size = row.integer("vocab");
  spec.max_positions = row.integer("seq_len");
  spec.ffn_size = row.has("ffn_hidden") ? row.integer("ffn_hidden") : 0;
  set_family(row.text("activation"), spec);
  set_latent_attention(row, spec);
  set_experts(row, spec);
  set_windows(row, spec);
  return spec;
}

void set_switch(const std::string& word, TrainingRun& run) {
  RunSwitches& s = run.switches;
  const auto colon = word.find(':');
  const std::string key = word.substr(0, colon);
  const std::string value = colon == std::string::npos ? "" : word.substr(colon + 1);
  if (key == "compile")
    s.compile = true;
  else if (key == "eager")
    s.eager = true;
  else if (key == "async_tp")
    s.async_tp = true;
  else if (key == "token_drop")
    s.token_drop = true;
  else if (key == "no_grouped_gemm")
    s.no_grouped_gemm = true;
  else if (key == "balanced_routing")
    s.balanced_routing = true;
  else if (key == "fused_dispatch")
    s.fused_dispatch = true;
  else if (key == "moe_a2a_overlap")
    s.moe_a2a_overlap = true;
  else if (key == "cuda_graphs")
    s.cuda_graphs = value == "full" ? CudaGraphs::Full : CudaGraphs::Partial;
  else if (key == "cp_a2a")
    s.cp_all_to_all = true;
  else if (key == "embedding_and_head_as_layers")
    s.embedding_and_head_as_layers = true;
  else if (key == "fp32_grad_accum")
    s.fp32_gradients = true;
  else if (key == "reduce_in_bf16")
    s.reduce_in_bf16 = true;
  else if (key == "megatron_fsdp")
    s.megatron_fsdp = true;
  else if (key == "offload_activations")
    s.offload_activation_layers = number_after(value, "").value_or(run.model.num_layers);
  else if (key == "offload_optimizer")
    s.offload_optimizer = true;
  else if (key == "offload_parameters")
    s.offload_parameters = true;
  else if (key == "dropout")
    s.dropout = std::strtod(value.c_str(), nullptr);
  else if (key == "mtp")
    run.model.mtp_layers = 1;
  else if (key == "embedding_layernorm")
    run.model.embedding_norm = true;
  else if (key == "alibi")
    run.model.positions = models::Positions::None;
  else if (key == "cp_ring" || key == "one_micro_batch") {
  } else
    throw ConfigError(fmt::format("switches: '{}' is not known", word));
}

void set_recompute(const Row& row, TrainingRun& run) {
  const std::string& text = row.text("recompute");
  run.recompute_stated = !text.empty();
  if (text.empty() || text == "none") return;
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string what = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (kind == "full") {
    run.recompute = RunRecompute::Full;
    if (what == "every_2nd_layer")
      run.recompute = RunRecompute::EverySecondLayer;
    else if (!what.empty())
      run.recompute_layers = number_after(what, "");
  } else if (kind == "selective") {
    run.recompute = what == "per_op" ? RunRecompute::PerOp : RunRecompute::CoreAttention;
  } else {
    throw ConfigError(fmt::format("recompute: '{}' is not none, full or selective", text));
  }
}

void set_parallel(const Row& row, TrainingRun& run) {
  auto& p = run.parallel;
  p.tp = row.integer("tp", 1);
  p.pp = row.integer("pp", 1);
  p.vpp = row.integer("vpp", 1);
  p.cp = row.integer("cp", 1);
  p.ep = row.integer("ep", 1);
  p.etp = row.integer("etp", run.model.moe ? p.tp : 1);
  const int gpus = row.integer("num_gpus");
  if (gpus % (p.tp * p.pp * p.cp) != 0)
    throw ConfigError(
        fmt::format("num_gpus: {} is not a multiple of tp*pp*cp = {}", gpus, p.tp * p.pp * p.cp));
  p.dp = gpus / (p.tp * p.pp * p.cp);
  p.sp = row.text("sequence_parallel") == "yes" && p.tp > 1;
  run.sp_stated = row.has("sequence_parallel");
}

void set_sharding(const Row& row, TrainingRun& run) {
  const std::string& text = row.text("zero_stage");
  if (text.empty()) {
    run.zero_stage = -1;  // left to the profile
    return;
  }
  run.zero_stage = text[0] - '0';
  run.shard_in_node = mentions(text, "in_node");
  if (run.zero_stage < 0 || run.zero_stage > 3)
    throw ConfigError(fmt::format("zero_stage: '{}' is not 0, 1, 2, 3 or 3:in_node", text));
}

TrainingRun run_of(const Row& row) {
  TrainingRun run;
  run.model = model_of(row);
  run.cluster = row.text("cluster");
  run.profile = row.text("software");
  set_parallel(row, run);
  set_sharding(row, run);
  run.seq_len = row.integer("seq_len");
  run.micro_batch_size = row.integer("micro_batch_size");
  run.global_batch_size = row.integer("global_batch_size");
  const std::int64_t per_round = std::int64_t{run.micro_batch_size} * run.parallel.dp;
  if (run.global_batch_size % per_round != 0)
    throw ConfigError(
        fmt::format("global_batch_size: {} is not a multiple of micro_batch_size * dp = {}",
                    run.global_batch_size, per_round));
  run.precision = choose(
      "precision", row.text("precision"),
      std::array<std::pair<const char*, RunPrecision>, 5>{{{"bf16", RunPrecision::Bf16},
                                                           {"fp16", RunPrecision::Fp16},
                                                           {"fp8", RunPrecision::Fp8},
                                                           {"mxfp8", RunPrecision::MxFp8},
                                                           {"fp8-block", RunPrecision::Fp8Block}}});
  run.attention =
      choose("attention", row.text("attention"),
             std::array<std::pair<const char*, AttentionKernel>, 2>{
                 {{"flash", AttentionKernel::Flash}, {"unfused", AttentionKernel::Unfused}}});
  set_recompute(row, run);
  for (const std::string& part : split(row.text("overlap"), '+')) {
    run.overlap_dp |= part == "dp";
    run.overlap_tp |= part == "tp";
    run.overlap_p2p |= part == "p2p";
  }
  for (const std::string& word : split(row.text("switches"), ';')) set_switch(word, run);
  return run;
}

MemoryKind memory_kind_of(const std::string& text) {
  if (mentions(text, "smi")) return MemoryKind::Visible;
  if (mentions(text, "allocated")) return MemoryKind::Allocated;
  return mentions(text, "reserved") ? MemoryKind::Reserved : MemoryKind::Allocated;
}

PublishedRow row_of(const Row& row) {
  PublishedRow published;
  published.id = row.text("id");
  published.family = row.text("family");
  published.suite = row.text("suite");
  published.model = row.text("model");
  try {
    published.step_time_s = row.number("step_time_s");
    published.peak_mem_gib = row.number("peak_mem_gib");
    published.memory_kind = memory_kind_of(row.text("peak_mem_kind"));
    if (published.memory_kind == MemoryKind::Visible && published.peak_mem_gib &&
        mentions(row.text("peak_mem_kind"), "GB"))
      published.peak_mem_gib = *published.peak_mem_gib;
    published.run = run_of(row);
  } catch (const ConfigError& error) {
    published.error = error.what();
  }
  return published;
}

}  // namespace

std::vector<PublishedRow> parse_published_table(std::string_view text, const std::string& file) {
  const auto cells = parse_csv(text, file);
  if (cells.empty()) throw ConfigError(fmt::format("{}: is empty; expected a header line", file));
  std::map<std::string, std::size_t> columns;
  for (std::size_t i = 0; i < cells.front().size(); ++i) columns.emplace(cells.front()[i], i);
  for (const std::string& column : kColumns)
    if (!columns.contains(column))
      throw ConfigError(fmt::format("{}: line 1: column '{}' is missing", file, column));
  std::vector<PublishedRow> rows;
  for (std::size_t i = 1; i < cells.size(); ++i) rows.push_back(row_of(Row(columns, cells[i])));
  return rows;
}

}  // namespace meshplan::sim
