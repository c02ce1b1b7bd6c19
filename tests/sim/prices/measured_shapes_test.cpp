#include "prices/measured_shapes.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/embedded_file.hpp"
#include "core/units.hpp"
#include "prices/operator_table.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {

std::span<const EmbeddedFile> operator_table_presets();

namespace {

MeasuredWork product(double m, double n, double k) {
  return {.group = "bfloat16", .work = ProductWork{OperandType::Half, m, n, k}};
}

Cluster alone(std::string_view preset) {
  return with_operator_speeds(load_data_sheet(preset), operator_constants());
}

double without_tables(const ProductShape& shape, Cluster cluster) {
  cluster.device.operators.clear();
  return product_seconds(shape, peak_flop_per_s(cluster, DType::BF16), 0, cluster);
}

}  // namespace

TEST_CASE("A correction is what near shapes took, and nothing far from all of them",
          "[sim][measured_shapes]") {
  MeasuredShapes shapes;
  shapes.add(product(1024, 1024, 1024), 1.5);
  shapes.add(product(4096, 1024, 1024), 1.5);
  CHECK(shapes.of(product(1024, 1024, 1024)).factor == Approx(1.5));
  CHECK(shapes.of(product(1024, 1024, 1024)).near);
  // Between two that are one power of two away each: log 1.5 * 2 / (2 + 1 / 4).
  CHECK(shapes.of(product(2048, 1024, 1024)).factor == Approx(std::pow(1.5, 2 / 2.25)));
  CHECK(!shapes.of(product(2048, 1024, 1024)).near);
  CHECK(shapes.of(product(1448, 1024, 1024)).near);
  const ShapeCorrection far = shapes.of(product(1 << 20, 1 << 20, 1 << 20));
  CHECK(far.factor == Approx(1).epsilon(0.02));
  CHECK(!far.near);
  // A shape that is left out is told by the other, two powers of two away.
  CHECK(shapes.of(product(1024, 1024, 1024), MeasuredShapes::Shape::Others).factor ==
        Approx(std::sqrt(1.5)));
  CHECK(
      shapes.of({.group = "fp8", .work = ProductWork{OperandType::Fp8, 1024, 1024, 1024}}).factor ==
      1);
}

// Figures of the tables in sim/operators.
TEST_CASE("What the presets' tables hold takes what was measured", "[sim][measured_shapes]") {
  const Cluster h100 = alone("dgx-h100");
  const auto seconds = [&](const MeasuredWork& work) {
    return work_seconds(work, h100, operator_constants());
  };
  CHECK(seconds(product(1024, 1024, 10240)) * kMicroseconds == Approx(41.701).epsilon(0.02));
  const double bytes = 2.0 * 16777216 / 2;  // of one of two ranks
  CHECK(
      seconds({.group = "half", .work = CollectiveWork{program::Collective::AllGather, 2, bytes}}) *
          kMicroseconds ==
      Approx(92.9).epsilon(0.01));
}

TEST_CASE("Tables correct what they speak of, and nothing else", "[sim][measured_shapes]") {
  const Cluster h100 = alone("dgx-h100");
  const double peak = peak_flop_per_s(h100, DType::BF16);
  const ProductShape forward{.m = 1024, .n = 1024, .k = 10240};
  CHECK(product_seconds(forward, peak, 0, h100) != without_tables(forward, h100));
  ProductShape other = forward;
  other.forward = false;  // gradients' products lie otherwise in memory
  CHECK(product_seconds(other, peak, 0, h100) == without_tables(other, h100));
  other = forward;
  other.count = 8;  // of experts
  CHECK(product_seconds(other, peak, 0, h100) == without_tables(other, h100));
  other = forward;
  other.type.reset();  // wider than 16 bit
  CHECK(product_seconds(other, peak, 0, h100) == without_tables(other, h100));
  // B300 has a data sheet alone.
  const Cluster b300 = alone("dgx-b300");
  CHECK(product_seconds(forward, peak_flop_per_s(b300, DType::BF16), 0, b300) ==
        without_tables(forward, b300));
  // Collectives: where a preset's links are the table's, and switches sum as they did there.
  using program::Collective;
  const auto factor = [](Collective collective, const Cluster& cluster) {
    return collective_correction(collective, 8, 1 << 26, cluster).factor;
  };
  CHECK(factor(Collective::AllReduce, h100) != 1);
  CHECK(factor(Collective::AllGather, alone("dgx-a100")) != 1);
  CHECK(factor(Collective::AllGather, alone("jean-zay-a100")) == 1);
  Cluster old = h100;
  old.communication.offers.clear();
  CHECK(factor(Collective::AllGather, old) == factor(Collective::AllGather, h100));
  CHECK(factor(Collective::AllReduce, old) == 1);
}

TEST_CASE("A price says whether shapes near it were measured", "[sim][measured_shapes]") {
  const Cluster h100 = load_cluster_preset("dgx-h100");
  const OperatorTable table(h100);
  const auto source = [&](const char* signature) {
    return table.price(signature, 1e12, 1e9).source;
  };
  CHECK(source("linear.forward bf16 t=4096 out=12288 in=4096") == PriceSource::Interpolated);
  CHECK(source("linear.weight_grad bf16 t=4096 out=12288 in=4096") == PriceSource::Formula);
  CHECK(source("linear.forward bf16 t=1 out=12288 in=4096") == PriceSource::Formula);
  CHECK(source("linear.forward fp32 t=4096 out=12288 in=4096") == PriceSource::Formula);
}

TEST_CASE("The presets' tables are small, and of devices that a preset describes",
          "[sim][measured_shapes]") {
  std::size_t bytes = 0;
  for (const EmbeddedFile& file : operator_table_presets()) {
    bytes += file.text.size();
    INFO(file.name);
    CHECK(!data_sheet_name(file.name.substr(0, file.name.find('.'))).empty());
  }
  CHECK(bytes > 0);
  CHECK(bytes <= 2'000'000);
}

}  // namespace meshplan::sim
