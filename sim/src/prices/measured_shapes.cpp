#include "prices/measured_shapes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "core/embedded_file.hpp"
#include "prices/device_speeds.hpp"

namespace meshplan::sim {

std::span<const EmbeddedFile> operator_table_presets();

namespace {

double squared_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

/// A device of the tables: its data sheet, and what it took over the formulas when first asked for.
class TimedDevice {
 public:
  explicit TimedDevice(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  const Cluster& sheet() {
    read();
    return sheet_;
  }
  const MeasuredShapes& shapes() {
    read();
    return shapes_;
  }

 private:
  void read() {
    std::call_once(read_, [&] {
      sheet_ = without_measured_shapes(load_data_sheet(data_sheet_name(name_)));
      Cluster priced = with_operator_speeds(sheet_, operator_constants());
      for (const EmbeddedFile& file : operator_table_presets()) {
        const std::size_t dot = file.name.find('.');
        if (file.name.substr(0, dot) != name_) continue;
        for (const MeasuredWork& row :
             parse_measured_works(file.text, std::string(file.name.substr(dot + 1)) + ".csv")) {
          priced = holding(priced, row);
          shapes_.add(row, row.seconds / work_seconds(row, priced, operator_constants()));
        }
      }
    });
  }

  std::string name_;
  std::once_flag read_;
  Cluster sheet_;
  MeasuredShapes shapes_;
};

/// @returns null if no table is of such a device
TimedDevice* timed_device(std::string_view name) {
  static const auto kDevices = [] {
    std::vector<std::unique_ptr<TimedDevice>> devices;
    for (const EmbeddedFile& file : operator_table_presets()) {
      const std::string_view device = file.name.substr(0, file.name.find('.'));
      if (devices.empty() || devices.back()->name() != device)
        devices.push_back(std::make_unique<TimedDevice>(std::string(device)));
    }
    return devices;
  }();
  for (const auto& device : kDevices)
    if (device->name() == name) return device.get();
  return nullptr;
}

/// What a correction depends on, besides the device.
using Key = std::array<double, 9>;
constexpr double kProduct = 0, kAttention = 1, kCollective = 2, kExchange = 3, kLinear = 4,
                 kConvolution = 5;  // first items

/// @param compute  with the device, where the thread does not know the answer
template <class Compute>
ShapeCorrection remembered(std::string_view device, const Key& key, Compute compute) {
  struct Slot {
    const TimedDevice* device = nullptr;
    Key key{};
    ShapeCorrection correction;
  };
  constexpr std::size_t kSlots = 1024;
  static thread_local std::array<Slot, kSlots> slots{};
  TimedDevice* timed = device.empty() ? nullptr : timed_device(device);
  if (timed == nullptr) return {};
  constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15ULL;  // Knuth, TAOCP 3, section 6.4
  std::uint64_t hash = 0;
  for (const double item : key) {
    hash ^= std::bit_cast<std::uint64_t>(item);  // of whole numbers mostly its upper half
    hash = (hash ^ (hash >> 32)) * kSpread;
  }
  Slot& slot = slots[(hash >> 32) % kSlots];
  if (slot.device != timed || slot.key != key) slot = {timed, key, compute(*timed)};
  return slot.correction;
}

bool switches_sum(const Cluster& cluster) {
  return std::ranges::find(cluster.communication.offers, FabricOffer::Nvls) !=
         cluster.communication.offers.end();
}

}  // namespace

MeasuredShapes::Kind MeasuredShapes::kind_of(const MeasuredWork& work, const WorkShape& shape) {
  std::vector<double> kind = shape.kind;
  kind.push_back(static_cast<double>(work.work.index()));
  return {work.group, std::move(kind)};
}

void MeasuredShapes::add(const MeasuredWork& row, double ratio) {
  WorkShape shape = shape_of(row);
  kinds_[kind_of(row, shape)].push_back({std::move(shape.sizes), std::log(ratio)});
}

ShapeCorrection MeasuredShapes::of(const MeasuredWork& work, Shape shapes) const {
  const WorkShape shape = shape_of(work);
  const auto found = kinds_.find(kind_of(work, shape));
  if (found == kinds_.end()) return {};
  constexpr std::size_t kMostCorners = 8;
  constexpr double kSame = 1e-9, kFormula = 4, kNear = 1;  // squared distances
  struct Corner {
    double distance = 0;  // squared
    double log_ratio = 0;
  };
  std::array<Corner, kMostCorners> near;  // ascending
  const std::size_t corners = std::min(kMostCorners, shape.sizes.size() + 1);
  std::size_t count = 0;
  for (const Timed& timed : found->second) {
    const double distance = std::max(kSame, squared_distance(shape.sizes, timed.sizes));
    if (shapes == Shape::Others && distance == kSame) continue;
    if (count == corners && distance >= near[count - 1].distance) continue;
    std::size_t place = count < corners ? count++ : count - 1;
    for (; place > 0 && near[place - 1].distance > distance; --place) near[place] = near[place - 1];
    near[place] = {distance, timed.log_ratio};
  }
  double weights = 1 / kFormula, sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    weights += 1 / near[i].distance;
    sum += near[i].log_ratio / near[i].distance;
  }
  return {.factor = std::exp(sum / weights), .near = count > 0 && near[0].distance < kNear};
}

ShapeCorrection shape_correction(const MeasuredWork& work, std::string_view device,
                                 MeasuredShapes::Shape shapes) {
  TimedDevice* timed = device.empty() ? nullptr : timed_device(device);
  return timed == nullptr ? ShapeCorrection{} : timed->shapes().of(work, shapes);
}

ShapeCorrection product_correction(const ProductWork& product, std::string_view device) {
  const Key key{kProduct, static_cast<double>(product.type), product.m, product.n, product.k};
  return remembered(device, key, [&](TimedDevice& timed) {
    return timed.shapes().of({.group = std::string(name_of(product.type)), .work = product});
  });
}

ShapeCorrection attention_correction(const AttentionWork& attention, std::string_view device) {
  const Key key{kAttention,         attention.batch, attention.seq,        attention.heads,
                attention.kv_heads, attention.head,  attention.value_head, attention.window};
  return remembered(device, key, [&](TimedDevice& timed) {
    return timed.shapes().of({.group = std::string(name_of(OperandType::Half)), .work = attention});
  });
}

ShapeCorrection linear_attention_correction(const LinearAttentionWork& work,
                                            std::string_view device) {
  const Key key{kLinear,          static_cast<double>(work.kind),
                work.batch,       work.seq,
                work.key_heads,   work.key_size,
                work.value_heads, work.value_size,
                work.chunk};
  return remembered(device, key, [&](TimedDevice& timed) {
    return timed.shapes().of({.group = group_of(work), .work = work});
  });
}

ShapeCorrection convolution_correction(const ShortConvolutionWork& work, std::string_view device) {
  const Key key{kConvolution, static_cast<double>(work.kind),   work.batch, work.seq, work.channels,
                work.taps,    static_cast<double>(work.kernels)};
  return remembered(device, key, [&](TimedDevice& timed) {
    return timed.shapes().of({.group = group_of(work), .work = work});
  });
}

ShapeCorrection collective_correction(program::Collective collective, int ranks, double bytes,
                                      const Cluster& cluster) {
  const bool sums = switches_sum(cluster);
  const Key key{kCollective, static_cast<double>(collective), static_cast<double>(ranks), bytes,
                sums ? 1.0 : 0.0};
  return remembered(cluster.fabric.front().operators, key, [&](TimedDevice& timed) {
    if (collective == program::Collective::AllReduce && sums != switches_sum(timed.sheet()))
      return ShapeCorrection{};
    return timed.shapes().of({.group = "half", .work = CollectiveWork{collective, ranks, bytes}});
  });
}

ShapeCorrection exchange_correction(const ExchangeWork& work, const Cluster& cluster) {
  const Key key{kExchange,        static_cast<double>(work.part),  work.tokens, work.bytes,
                work.token_ranks, static_cast<double>(work.ranks), work.sms};
  return remembered(cluster.fabric.front().operators, key, [&](TimedDevice& timed) {
    return timed.shapes().of({.group = exchange_group(work.part, 1), .work = work});
  });
}

}  // namespace meshplan::sim
