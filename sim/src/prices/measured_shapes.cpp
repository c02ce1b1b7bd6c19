#include "prices/measured_shapes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
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

ShapeCorrection collective_correction(program::Collective collective, int ranks, double bytes,
                                      const Cluster& cluster) {
  const std::string& device = cluster.fabric.front().operators;
  TimedDevice* timed = device.empty() ? nullptr : timed_device(device);
  if (timed == nullptr) return {};
  if (collective == program::Collective::AllReduce &&
      switches_sum(cluster) != switches_sum(timed->sheet()))
    return {};
  return timed->shapes().of({.group = "half", .work = CollectiveWork{collective, ranks, bytes}});
}

}  // namespace meshplan::sim
