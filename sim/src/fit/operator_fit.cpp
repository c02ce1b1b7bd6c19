#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.hpp"
#include "fit/device_works.hpp"
#include "prices/device_speeds.hpp"

namespace meshplan::sim {
namespace {

constexpr double kWorst = 0.6;          // log error beyond which a row's pull stops growing
constexpr std::size_t kMostRows = 400;  // of a group, that a fit looks at
constexpr int kSweeps = 12;
constexpr double kFirstStep = 0.2;  // of a constant's logarithm
constexpr double kLeastStep = 1e-3;

/// The files whose rows a constant has a part in.
std::set<std::string> files_of(std::string_view constant) {
  const auto starts = [&](std::string_view prefix) { return constant.starts_with(prefix); };
  if (starts("product_") || starts("fp8_") || starts("fp4_") || starts("half_tile"))
    return {"gemm.csv"};
  if (starts("kernel_")) return {"gemm.csv", "attention.csv", "mla.csv", "moe.csv"};
  if (starts("linear_") || starts("convolution_")) return {"linear_attention.csv"};
  if (starts("permuted_")) return {"moe.csv"};
  if (starts("attention_") || starts("exponentials")) return {"attention.csv", "mla.csv"};
  if (starts("window_")) return {"attention.csv"};
  if (starts("deepep_") || starts("exchange_")) return {"deepep.csv"};
  if (starts("domain_") || starts("one_sided_") || starts("two_sided_") || starts("prepared_"))
    return {"domain_exchange.csv"};
  return {"nccl.csv"};
}

class OperatorFitter {
 public:
  OperatorFitter(const std::vector<WorkTable>& tables, const ForEach& for_each)
      : for_each_(for_each) {
    for (const WorkTable& table : tables)
      for (DeviceWorks& works : by_device(table)) works_.push_back(thinned(std::move(works)));
  }

  std::vector<ConstantRecord> fit(std::vector<ConstantRecord> records) {
    records = at_expected(std::move(records));
    std::vector<double> steps(records.size(), kFirstStep);
    for (int sweep = 0; sweep < kSweeps; ++sweep)
      for (std::size_t c = 0; c < records.size(); ++c) improve(records, c, steps[c]);
    return records;
  }

 private:
  static DeviceWorks thinned(DeviceWorks works) {
    std::map<std::string, std::vector<const MeasuredWork*>> groups;
    for (const MeasuredWork* row : works.rows) groups[row->group].push_back(row);
    works.rows.clear();
    for (const auto& [group, rows] : groups) {
      const std::size_t every = (rows.size() + kMostRows - 1) / kMostRows;
      for (std::size_t i = 0; i < rows.size(); i += every) works.rows.push_back(rows[i]);
    }
    return works;
  }

  void improve(std::vector<ConstantRecord>& records, std::size_t c, double& step) const {
    if (step < kLeastStep) return;
    const std::set<std::string> files = files_of(records[c].name);
    const double before = loss(records, files);
    for (const double direction : {step, -step}) {
      auto tried = records;
      ConstantRecord& record = tried[c];
      record.value = std::clamp(record.value * std::exp(direction), record.low, record.high);
      if (loss(tried, files) >= before * (1 - 1e-6)) continue;
      records = tried;
      return;
    }
    step /= 2;
  }

  double loss(const std::vector<ConstantRecord>& records,
              const std::set<std::string>& files) const {
    const OperatorConstants constants = values_of(records, operator_constant_members());
    std::vector<double> losses(works_.size(), 0);
    for_each_(works_.size(), [&](std::size_t i) {
      if (files.contains(works_[i].file)) losses[i] = loss(works_[i], constants);
    });
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return sum;
  }

  /// Summed over the groups of a file and device.
  static double loss(const DeviceWorks& works, const OperatorConstants& constants) {
    const Cluster cluster = with_operator_speeds(works.data_sheet, constants);
    std::map<std::string, std::pair<double, int>> groups;
    for (const MeasuredWork* row : works.rows) {
      const double error = std::log(work_seconds(*row, cluster, constants) / row->seconds);
      auto& [sum, count] = groups[row->group];
      sum += std::min(std::abs(error), kWorst);
      ++count;
    }
    double sum = 0;
    for (const auto& [name, group] : groups) sum += group.first / group.second;
    return sum;
  }

  const ForEach& for_each_;
  std::vector<DeviceWorks> works_;
};

Architecture relative_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::Ampere:  // both multiply from registers, while their warps wait
    case Architecture::BlackwellRtx:
      return Architecture::Ada;
    case Architecture::Ada:
      return Architecture::Ampere;
    case Architecture::Hopper:  // both from shared memory, beside their warps
      return Architecture::Blackwell;
    case Architecture::Blackwell:
      return Architecture::Hopper;
    case Architecture::Cdna3:
    case Architecture::Cdna4:
    case Architecture::Other:
      return Architecture::Other;
  }
  throw InvariantError("unknown architecture");
}

void set_rates(OperatorConstants& c, Architecture architecture, const ArchitectureRates& rates) {
  switch (architecture) {
    case Architecture::Ampere:
      c.product_ampere = rates.product;
      c.half_tile_ampere = rates.half_tile;
      c.attention_ampere = rates.attention;
      c.links_ampere = rates.links;
      return;
    case Architecture::Ada:
      c.product_ada = rates.product;
      c.fp8_ada = rates.fp8;
      c.fp8_block_ada = rates.fp8_block;
      c.attention_ada = rates.attention;
      return;
    case Architecture::Hopper:
      c.product_hopper = rates.product;
      c.fp8_hopper = rates.fp8;
      c.fp8_block_hopper = rates.fp8_block;
      c.attention_hopper = rates.attention;
      c.links_hopper = rates.links;
      c.nvls_hopper = rates.nvls;
      return;
    case Architecture::Blackwell:
      c.product_blackwell = rates.product;
      c.fp8_blackwell = rates.fp8;
      c.fp8_block_blackwell = rates.fp8_block;
      c.fp4_blackwell = rates.fp8;
      c.attention_blackwell = rates.attention;
      c.links_blackwell = rates.links;
      c.nvls_blackwell = rates.nvls;
      return;
    case Architecture::BlackwellRtx:  // these have no rates of their own
    case Architecture::Cdna3:
    case Architecture::Cdna4:
    case Architecture::Other:
      return;
  }
  throw InvariantError("unknown architecture");
}

}  // namespace

std::vector<ConstantRecord> fit_operators(const std::vector<WorkTable>& tables,
                                          const std::vector<ConstantRecord>& records,
                                          const ForEach& for_each) {
  return OperatorFitter(tables, for_each).fit(records);
}

OperatorConstants without_architecture(OperatorConstants c, Architecture architecture) {
  constexpr double kMost = 0.85;  // of the peak: no architecture's products reach more at load
  const Architecture relative = relative_of(architecture);
  ArchitectureRates rates = rates_of(relative, c);
  const double watts = measured_watts_per_tflop(architecture) / measured_watts_per_tflop(relative);
  const double product = std::min(kMost, rates.product * watts);
  // FP8's part of its peak over 16 bit's of its own, where the relative has FP8; else Hopper's.
  const ArchitectureRates fp8 = rates.fp8 > 0 ? rates : rates_of(Architecture::Hopper, c);
  rates.fp8 = product * fp8.fp8 / fp8.product;
  rates.fp8_block = product * fp8.fp8_block / fp8.product;
  rates.product = product;
  if (architecture == Architecture::Ampere) rates.links = c.links_hopper;  // Ada has no NVLink
  set_rates(c, architecture, rates);
  return c;
}

}  // namespace meshplan::sim
