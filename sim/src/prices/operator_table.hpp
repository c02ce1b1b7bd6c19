#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/dtype.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {

/// "linear.forward bf16 t=64 out=8 in=4 bias" taken apart: kind, dtype, sizes in order, other
/// words.
struct SignatureParts {
  std::string kind;
  DType dtype = DType::F32;
  std::vector<double> sizes;
  std::vector<std::string> flags;
  std::map<std::string, std::string, std::less<>> named;  // {"e", "192:128"}

  /// @returns a named size, or of two with a colon between them the first; 0 if there is none
  double size(std::string_view name) const;
  bool has(std::string_view flag) const;
};
SignatureParts parse_signature(std::string_view signature);

/// What the data sheet says of an operation. Linear and attention are bounded by arithmetic or by
/// memory, whichever is slower (roofline: Williams, Waterman and Patterson 2009); all else by
/// memory.
double formula_seconds(const SignatureParts& parts, double flops, double bytes,
                       const Cluster& cluster);

/// Prices operators from a cluster's measured table, else from its data sheet.
class OperatorTable {
 public:
  explicit OperatorTable(const Cluster& cluster);  // keeps a reference

  Price price(const std::string& signature, double flops, double bytes) const;

 private:
  struct Sample {
    const MeasuredOperator* measured = nullptr;
    SignatureParts parts;
    double correction = 1;  // measured over formula
  };
  /// What the samples near `parts` took over what the formula says of them: a mean in log space,
  /// weighted by inverse squared distance in log2 of the sizes; a differing flag counts as
  /// distance 1.
  struct Correction {
    double seconds = 1;
    double slowdown = 1;  // seconds_busy / seconds
  };
  struct Kind {
    std::vector<Sample> samples;
    MeasuredSizes sizes;
  };
  Correction correction_for(const SignatureParts& parts, const std::vector<Sample>& samples) const;
  Price with_memory_demand(Price price, double slowdown, double bytes) const;

  const Cluster& cluster_;
  std::unordered_map<std::string, const MeasuredOperator*> exact_;
  std::unordered_map<std::string, Kind> by_kind_;  // by "kind dtype #sizes"
};

}  // namespace meshplan::sim
