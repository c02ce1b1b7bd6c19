// Tables of single operators that were timed alone on real GPUs, as extracted from
// ai-dynamo/aiconfigurator: gemm.csv, attention.csv, mla.csv, linear_attention.csv, moe.csv,
// nccl.csv, deepep.csv and domain_exchange.csv.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "program/program.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/prices/linear_attention.hpp"
#include "sim/prices/operator_constants.hpp"

namespace meshplan::sim {

/// How the operands of a product are stored: 16 bit, FP8 with a scale a tensor or a block, 4 bit.
enum class OperandType { Half, Fp8, Fp8Block, Fp4 };

/// As the tables name it.
std::string_view name_of(OperandType type);

/// (m, k) x (k, n), and the cast of the 16-bit activations (m, k) to a smaller type.
struct ProductWork {
  OperandType type = OperandType::Half;
  double m = 0, n = 0, k = 0;
};

/// Causal attention of a prompt, forward; all heads of all sequences.
struct AttentionWork {
  double batch = 0, seq = 0, heads = 0, kv_heads = 0;
  double head = 0, value_head = 0;  // elements
  double window = 0;                // keys that a query sees; 0 = all before it
  bool prepares = true;  // rotates queries and keys, and files keys and values, before it
  bool operator==(const AttentionWork&) const = default;
};

/// Permutation, grouped products and activation of the experts that one rank holds, balanced.
struct ExpertsWork {
  OperandType type = OperandType::Half;
  double tokens = 0, hidden = 0, ffn = 0, experts = 0, top_k = 0, etp = 0, ep = 0;
  bool gated = true;  // three matrices an expert instead of two
};

struct CollectiveWork {
  program::Collective collective = program::Collective::AllReduce;
  int ranks = 2;
  double bytes = 0;          // that one rank passes in
  bool switches_sum = true;  // NVSwitch adds floating-point numbers, but not bytes
};

enum class ExchangeKernels {
  DeepEp,    // DeepEP's normal kernels: SMs copy rows through buffers (csrc/kernels/internode.cu)
  HybridEp,  // its branch by NVIDIA: bulk copies (TMA) straight to other ranks' memory
  OneSided,  // TensorRT-LLM's, likewise, by as many SMs as it takes
  TwoSided,  // TensorRT-LLM's: through queues between each two ranks
};
enum class ExchangePart { Prepare, Dispatch, Combine };

/// Rows of a rank's tokens to the ranks of their experts, or (combine) their sums back.
struct ExchangeWork {
  ExchangeKernels kernels = ExchangeKernels::DeepEp;
  ExchangePart part = ExchangePart::Dispatch;
  double tokens = 0;       // of a rank
  double bytes = 0;        // of one row as it travels
  double token_ranks = 0;  // that hold experts of a token, expected
  double token_nodes = 1;  // innermost domains that do
  int ranks = 2;           // that take part
  double sms = 0;          // that the kernel takes; 0 = its default
  double wire = 1;         // part that it reaches of what links between nodes can
};

/// One timed operator.
struct MeasuredWork {
  std::string device;
  std::string group;  // rows that one table of errors holds together: the dtype, exchange_group()
                      // or group_of()
  std::variant<ProductWork, AttentionWork, ExpertsWork, CollectiveWork, ExchangeWork,
               LinearAttentionWork, ShortConvolutionWork>
      work;
  double seconds = 0;
};

/// The group of DeepEP's rows: "dispatch, 2 nodes".
std::string exchange_group(ExchangePart part, int nodes);

/// The tables' files, in the order of their reports.
const std::vector<std::string>& operator_files();

/// @param file  a path that ends in one of operator_files()
/// @throws ConfigError naming file, line and what is wrong
std::vector<MeasuredWork> parse_measured_works(std::string_view text, const std::string& file);

/// Is the row one that formulas are judged on? Products with all sides of at least 1,024,
/// collectives of at least 1 MiB, all else.
bool is_judged(const MeasuredWork& row);

/// The preset whose data sheet describes a device of the tables, which may also be named as a
/// preset is; empty for an unknown one.
std::string data_sheet_name(std::string_view device);

/// Seconds of the operator alone, with what the tables' serving stack does beside it.
/// @param cluster  with_operator_speeds() of the device's data sheet, with ranks enough
double work_seconds(const MeasuredWork& row, const Cluster& cluster,
                    const OperatorConstants& constants);

/// The cluster with formulas that no measured operator corrects.
Cluster without_measured_shapes(Cluster cluster);

/// The machine in whole nodes, with ranks enough for the row.
Cluster holding(const Cluster& cluster, const MeasuredWork& row);

/// Logarithms of the sizes (base 2) in which neighbours are near, and what neighbours must share.
struct WorkShape {
  std::vector<double> sizes;
  std::vector<double> kind;
};
WorkShape shape_of(const MeasuredWork& row);

}  // namespace meshplan::sim
