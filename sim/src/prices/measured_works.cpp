#include "sim/prices/measured_works.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "core/csv.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "prices/token_places.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;

constexpr double kMega = 1e6;
constexpr double kLeastMicroseconds = 1e-3;

/// One line of an operator table, by column name.
class WorkCells {
 public:
  WorkCells(const std::vector<std::string>& header, const std::vector<std::string>& cells,
            std::string where)
      : header_(header), cells_(cells), where_(std::move(where)) {}

  const std::string& text(std::string_view column) const {
    const auto found = std::ranges::find(header_, column);
    const auto index = static_cast<std::size_t>(found - header_.begin());
    if (found == header_.end() || index >= cells_.size())
      throw ConfigError(fmt::format("{}: column '{}' is missing", where_, column));
    return cells_[index];
  }

  double number(std::string_view column, double least = 1, double most = limits::kTokens) const {
    const auto value = parse_number(text(column), least, most);
    if (!value)
      throw ConfigError(fmt::format("{}: {}: '{}' is not a number from {:g} to {:g}", where_,
                                    column, text(column), least, most));
    return *value;
  }

  template <class Value>
  Value one_of(std::string_view column, const std::map<std::string, Value>& known) const {
    const auto found = known.find(text(column));
    if (found != known.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [name, value] : known) names.push_back(name);
    throw ConfigError(fmt::format("{}: {}", where_,
                                  unknown_name_message(std::string(column), text(column), names)));
  }

 private:
  const std::vector<std::string>& header_;
  const std::vector<std::string>& cells_;
  std::string where_;
};

OperandType operand_type(const WorkCells& row) {
  std::map<std::string, OperandType> types;
  for (const OperandType type :
       {OperandType::Half, OperandType::Fp8, OperandType::Fp8Block, OperandType::Fp4})
    types.emplace(name_of(type), type);
  return row.one_of<OperandType>("dtype", types);
}

ProductWork product_of(const WorkCells& row) {
  return {operand_type(row), row.number("m"), row.number("n"), row.number("k")};
}

AttentionWork attention_of(const WorkCells& row) {
  const double head = row.number("head_dim");
  return {.batch = row.number("batch"),
          .seq = row.number("seq"),
          .heads = row.number("heads"),
          .kv_heads = row.number("kv_heads"),
          .head = head,
          .value_head = head,
          .window = row.number("window", 0)};
}

/// Heads of DeepSeek-V2 and V3, the only models whose latent attention the stack was timed for.
AttentionWork latent_attention_of(const WorkCells& row) {
  constexpr double kQueryHead = 192, kValueHead = 128;
  return {.batch = row.number("batch"),
          .seq = row.number("seq"),
          .heads = row.number("heads"),
          .kv_heads = row.number("heads"),
          .head = kQueryHead,
          .value_head = kValueHead,
          .prepares = false};
}

ExpertsWork experts_of(const WorkCells& row) {
  return {.type = operand_type(row),
          .tokens = row.number("tokens"),
          .hidden = row.number("hidden"),
          .ffn = row.number("ffn"),
          .experts = row.number("experts"),
          .top_k = row.number("top_k"),
          .etp = row.number("etp"),
          .ep = row.number("ep"),
          .gated = row.text("kernels").find("nongated") == std::string::npos};
}

/// nccl-tests counts the bytes of what all ranks hold together of the larger buffer.
CollectiveWork collective_work_of(const WorkCells& row) {
  const auto collective =
      row.one_of<Collective>("operation", {{"all_reduce", Collective::AllReduce},
                                           {"all_gather", Collective::AllGather},
                                           {"reduce_scatter", Collective::ReduceScatter},
                                           {"alltoall", Collective::AllToAll}});
  const double element = row.one_of<double>("dtype", {{"half", 2}, {"int8", 1}});
  const auto ranks = static_cast<int>(row.number("ranks", 1, limits::kListedRanks));
  const double bytes = element * row.number("message_size", 1, limits::kBytes / 2);
  return {collective, ranks, collective == Collective::AllGather ? bytes / ranks : bytes,
          element > 1};
}

constexpr double kGroupScales = 128;  // elements of FP8 for each scale of four bytes

/// Both ways of one line, with the counts that precede them. DeepEP's tests route at random; on
/// several nodes (8 GPUs each) to experts of four of them at most (tests/test_internode.py).
std::vector<MeasuredWork> deep_ep_exchanges_of(const WorkCells& row) {
  constexpr int kGpus = 8, kMostNodes = 4;
  const auto nodes =
      static_cast<int>(row.number("nodes", 1, static_cast<double>(limits::kListedRanks) / kGpus));
  const double hidden = row.number("hidden");
  const ExpertChoice choice{.experts = row.number("experts"),
                            .top_k = static_cast<int>(row.number("top_k", 1, limits::kWidth)),
                            .groups = nodes,
                            .top_groups = std::min(nodes, kMostNodes)};
  std::vector<MeasuredWork> both;
  for (const ExchangePart part : {ExchangePart::Dispatch, ExchangePart::Combine}) {
    const bool combines = part == ExchangePart::Combine;
    const ExchangeWork work{
        .part = part,
        .tokens = row.number("tokens_per_rank"),
        .bytes = combines ? 2 * hidden : hidden * (1 + sizeof(float) / kGroupScales),
        .token_ranks = expected_places(kGpus * nodes, choice),
        .token_nodes = expected_places(nodes, choice),
        .ranks = kGpus * nodes,
        .sms = row.number("sms")};
    const std::string name = combines ? "combine" : "dispatch";
    const double seconds = row.number(name + "_us", kLeastMicroseconds, limits::kSeconds) +
                           row.number(name + "_notify_us", 0, limits::kSeconds);
    both.push_back({.device = row.text("device"),
                    .group = exchange_group(part, nodes),
                    .work = work,
                    .seconds = seconds / kMega});
  }
  return both;
}

/// TensorRT-LLM's tokens choose experts of as many ranks as there are, one after another.
MeasuredWork domain_exchange_of(const WorkCells& row) {
  const auto part = row.one_of<ExchangePart>(
      "operation", {{"alltoall_prepare", ExchangePart::Prepare},
                    {"alltoall_dispatch", ExchangePart::Dispatch},
                    {"alltoall_combine", ExchangePart::Combine},
                    {"alltoall_combine_low_precision", ExchangePart::Combine}});
  const auto kernels =
      row.one_of<ExchangeKernels>("kernels", {{"NVLinkOneSided", ExchangeKernels::OneSided},
                                              {"NVLinkTwoSided", ExchangeKernels::TwoSided}});
  const auto dispatched = row.one_of<double>(
      "dtype",
      {{"nvfp4", 0.5 + 1.0 / 16}, {"fp8", 1 + sizeof(float) / kGroupScales}, {"bfloat16", 2}});
  const bool low = row.text("operation").ends_with("low_precision");
  const double ranks = row.number("ep", 2, limits::kListedRanks);
  const double element = part == ExchangePart::Combine && !low ? 2 : dispatched;
  row.one_of<bool>("distribution", {{"balanced", true}});
  ExchangeWork work{.kernels = kernels,
                    .part = part,
                    .tokens = row.number("tokens_per_rank"),
                    .bytes = element * row.number("hidden"),
                    .token_ranks = std::min(ranks, row.number("top_k")),
                    .ranks = static_cast<int>(ranks)};
  return {.device = row.text("device"),
          .group = (kernels == ExchangeKernels::OneSided ? "one-sided " : "two-sided ") +
                   row.text("operation").substr(std::string("alltoall_").size()),
          .work = work,
          .seconds = row.number("time_us", kLeastMicroseconds, limits::kSeconds) / kMega};
}

/// Kernels of one line: its recurrence, or the convolution before it. Of Mamba 2 heads_k are those
/// of the values, dim_k is the state's size, and groups share it.
MeasuredWork linear_attention_of(const WorkCells& row) {
  const auto kind = row.one_of<LinearAttention>("kind", {{"gdn", LinearAttention::GatedDelta},
                                                         {"kda", LinearAttention::KimiDelta},
                                                         {"mamba2", LinearAttention::Mamba2}});
  const auto kernels = row.one_of<int>("kernel", {{"chunk_gated_delta_rule", 0},
                                                  {"chunk_kda", 0},
                                                  {"causal_conv1d_fn", 1},
                                                  {"causal_conv1d_fn_qkv3", 3}});
  LinearAttentionWork work{.kind = kind,
                           .batch = row.number("batch"),
                           .seq = row.number("seq"),
                           .key_heads = row.number("heads_k"),
                           .key_size = row.number("dim_k"),
                           .value_heads = row.number("heads_v"),
                           .value_size = row.number("dim_v")};
  MeasuredWork result{.device = row.text("device"), .group = group_of(work), .work = work};
  if (kernels == 0) return result;
  const double keys = kind == LinearAttention::Mamba2 ? row.number("groups") * row.number("state")
                                                      : work.key_heads * work.key_size;
  const ShortConvolutionWork convolution{.kind = kind,
                                         .batch = work.batch,
                                         .seq = work.seq,
                                         .channels = 2 * keys + work.value_heads * work.value_size,
                                         .kernels = kernels};
  result.group = group_of(convolution);
  result.work = convolution;
  return result;
}

std::string name_in_path(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

const std::vector<std::string>& operator_files() {
  static const std::vector<std::string> kFiles{
      "gemm.csv", "attention.csv", "mla.csv",    "linear_attention.csv",
      "moe.csv",  "nccl.csv",      "deepep.csv", "domain_exchange.csv"};
  return kFiles;
}

std::string exchange_group(ExchangePart part, int nodes) {
  return fmt::format("{}, {} node{}", part == ExchangePart::Combine ? "combine" : "dispatch", nodes,
                     nodes == 1 ? "" : "s");
}

std::string_view name_of(OperandType type) {
  switch (type) {
    case OperandType::Half:
      return "bfloat16";
    case OperandType::Fp8:
      return "fp8";
    case OperandType::Fp8Block:
      return "fp8_block";
    case OperandType::Fp4:
      return "nvfp4";
  }
  throw InvariantError("unknown operand type");
}

std::vector<MeasuredWork> parse_measured_works(std::string_view text, const std::string& file) {
  const auto lines = parse_csv(text, file);
  if (lines.empty()) throw ConfigError(file + ": is empty; a header is expected");
  const std::string name = name_in_path(file);
  std::vector<MeasuredWork> rows;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const WorkCells cells(lines.front(), lines[i], fmt::format("{}: line {}", file, i + 1));
    if (name == "deepep.csv") {
      for (MeasuredWork& row : deep_ep_exchanges_of(cells)) rows.push_back(std::move(row));
      continue;
    }
    if (name == "domain_exchange.csv") {
      rows.push_back(domain_exchange_of(cells));
      continue;
    }
    if (name == "linear_attention.csv") {
      rows.push_back(linear_attention_of(cells));
      rows.back().seconds = cells.number("time_us", kLeastMicroseconds, limits::kSeconds) / kMega;
      continue;
    }
    MeasuredWork row{.device = cells.text("device"), .group = cells.text("dtype"), .work = {}};
    if (name == "gemm.csv")
      row.work = product_of(cells);
    else if (name == "attention.csv")
      row.work = attention_of(cells);
    else if (name == "mla.csv")
      row.work = latent_attention_of(cells);
    else if (name == "moe.csv")
      row.work = experts_of(cells);
    else if (name == "nccl.csv")
      row.work = collective_work_of(cells);
    else
      throw ConfigError(
          fmt::format("{}: {}", file, unknown_name_message("table", name, operator_files())));
    row.seconds = cells.number("time_us", kLeastMicroseconds, limits::kSeconds) / kMega;
    rows.push_back(std::move(row));
  }
  return rows;
}

bool is_judged(const MeasuredWork& row) {
  constexpr double kLeastSide = 1024, kLeastMessage = 1 << 20;
  if (const auto* product = std::get_if<ProductWork>(&row.work))
    return std::min({product->m, product->n, product->k}) >= kLeastSide;
  if (const auto* message = std::get_if<CollectiveWork>(&row.work)) {
    const bool gathers = message->collective == Collective::AllGather;
    return message->bytes * (gathers ? message->ranks : 1) >= kLeastMessage;
  }
  return true;
}

std::string data_sheet_name(std::string_view device) {
  static const std::map<std::string, std::string, std::less<>> kSheets{
      {"a100_sxm", "dgx-a100"},     {"h100_sxm", "dgx-h100"},      {"h200_sxm", "dgx-h200"},
      {"b200_sxm", "dgx-b200"},     {"b300_sxm", "dgx-b300"},      {"gb200", "gb200-nvl72"},
      {"gb200_sxm", "gb200-nvl72"}, {"gb300", "gb300-nvl72"},      {"gb300_sxm", "gb300-nvl72"},
      {"l40s", "8x-l40s-pcie"},     {"rtx4090", "8x-rtx4090-pcie"}};
  if (const auto found = kSheets.find(device); found != kSheets.end()) return found->second;
  const std::vector<std::string> presets = cluster_names();
  const bool is_preset = std::ranges::find(presets, device) != presets.end();
  return is_preset ? std::string(device) : "";
}

Cluster without_measured_shapes(Cluster cluster) {
  cluster.device.operators.clear();
  for (FabricLevel& level : cluster.fabric) level.operators.clear();
  return cluster;
}

Cluster holding(const Cluster& cluster, const MeasuredWork& row) {
  const auto* message = std::get_if<CollectiveWork>(&row.work);
  const auto* exchange = std::get_if<ExchangeWork>(&row.work);
  const int ranks = message != nullptr ? message->ranks : exchange != nullptr ? exchange->ranks : 1;
  if (ranks <= cluster.num_ranks()) return cluster;
  const int per_node = cluster.devices_per_node;
  return with_ranks(cluster, (ranks + per_node - 1) / per_node * per_node);
}

WorkShape shape_of(const MeasuredWork& row) {
  const auto logs = [](std::initializer_list<double> sizes) {
    std::vector<double> result;
    for (const double size : sizes) result.push_back(std::log2(std::max(1.0, size)));
    return result;
  };
  return std::visit(
      [&](const auto& work) -> WorkShape {
        using Work = std::decay_t<decltype(work)>;
        if constexpr (std::is_same_v<Work, ProductWork>) {
          return {logs({work.m, work.n, work.k}), {}};
        } else if constexpr (std::is_same_v<Work, AttentionWork>) {
          // A sequence's heads are computed like those of other sequences. Latent attention
          // projects what it keeps of a sequence for all its heads together.
          std::vector<double> kind{work.head, work.value_head, work.window};
          if (work.head != work.value_head)
            return {logs({work.batch, work.seq, work.heads}), std::move(kind)};
          return {logs({work.batch * work.heads, work.seq, work.heads / work.kv_heads}),
                  std::move(kind)};
        } else if constexpr (std::is_same_v<Work, ExpertsWork>) {
          return {logs({work.tokens, work.hidden, work.ffn / work.etp, work.experts / work.ep,
                        work.tokens * work.top_k / work.experts}),
                  {work.gated ? 1.0 : 0.0}};
        } else if constexpr (std::is_same_v<Work, ExchangeWork>) {
          return {logs({work.tokens, work.bytes, work.token_ranks, static_cast<double>(work.ranks),
                        work.sms}),
                  {static_cast<double>(work.kernels), static_cast<double>(work.part)}};
        } else if constexpr (std::is_same_v<Work, LinearAttentionWork>) {
          // Kernels are tuned for each number of heads: those of others lie twice as far.
          const double shared = work.value_heads / work.key_heads;
          return {
              logs({work.batch, work.seq, work.value_heads * work.value_heads, shared * shared}),
              {static_cast<double>(work.kind), work.key_size, work.value_size, work.chunk}};
        } else if constexpr (std::is_same_v<Work, ShortConvolutionWork>) {
          return {logs({work.batch, work.seq, work.channels}),
                  {static_cast<double>(work.kind), work.taps, static_cast<double>(work.kernels)}};
        } else {
          return {logs({work.bytes}),
                  {static_cast<double>(work.collective), static_cast<double>(work.ranks)}};
        }
      },
      row.work);
}

}  // namespace meshplan::sim
