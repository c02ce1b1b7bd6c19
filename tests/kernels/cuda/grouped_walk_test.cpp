// Which tiles the kernels of grouped products walk, against nested loops.
#include "products/grouped_walk.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <tuple>
#include <vector>

namespace meshplan::kernels::cuda {

namespace {

constexpr int kTileRows = 32;
constexpr int kTileColumns = 64;

/// Group, rows, first column, depth.
using Place =
    std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

template <Product product>
std::vector<Place> walked(const GroupedProduct& op, std::int64_t blocks) {
  std::vector<Place> places;
  for (std::int64_t block = 0; block < blocks; ++block)
    for (TileWalk<product, kTileRows, kTileColumns> walk(op, block); !walk.ended();
         walk.move(blocks)) {
      const GroupedTile t = walk.tile();
      places.emplace_back(t.group, t.first_row, t.end_row, t.first_column, t.begin, t.end);
    }
  std::sort(places.begin(), places.end());
  return places;
}

/// More rows than a panel of tiles has, none, fewer than a tile, whole tiles.
const std::vector<std::int32_t> kOffsets = {0, 1103, 1103, 1108, 1172, 1700};
constexpr std::int64_t kColumns = 200;

TEST_CASE("every tile of every group's rows is walked once", "[kernels][grouped]") {
  const GroupedProduct op{
      .num_groups = 5, .offsets = kOffsets.data(), .columns = kColumns, .depth = 70};
  std::vector<Place> expected;
  for (std::int64_t group = 0; group < 5; ++group) {
    const std::int64_t end = kOffsets[static_cast<std::size_t>(group) + 1];
    for (std::int64_t row = kOffsets[static_cast<std::size_t>(group)]; row < end; row += kTileRows)
      for (std::int64_t column = 0; column < kColumns; column += kTileColumns)
        expected.emplace_back(group, row, end, column, 0, 70);
  }
  for (const std::int64_t blocks : {1, 7, 132, 10000}) {
    CAPTURE(blocks);
    CHECK(walked<Product::RowsByRows>(op, blocks) == expected);
    CHECK(walked<Product::RowsByColumns>(op, blocks) == expected);
  }
  CHECK(most_tiles(Product::RowsByRows, op, 1700, kTileRows, kTileColumns) >=
        static_cast<std::int64_t>(expected.size()));
}

TEST_CASE("every tile of every group's own result is walked once", "[kernels][grouped]") {
  const GroupedProduct op{
      .num_groups = 5, .offsets = kOffsets.data(), .rows = 1030, .columns = kColumns};
  std::vector<Place> expected;
  for (std::int64_t group = 0; group < 5; ++group)
    for (std::int64_t row = 0; row < 1030; row += kTileRows)
      for (std::int64_t column = 0; column < kColumns; column += kTileColumns)
        expected.emplace_back(group, row, 1030, column, kOffsets[static_cast<std::size_t>(group)],
                              kOffsets[static_cast<std::size_t>(group) + 1]);
  for (const std::int64_t blocks : {1, 7, 132, 10000}) {
    CAPTURE(blocks);
    CHECK(walked<Product::ColumnsByColumns>(op, blocks) == expected);
  }
  CHECK(most_tiles(Product::ColumnsByColumns, op, 1700, kTileRows, kTileColumns) ==
        static_cast<std::int64_t>(expected.size()));
}

TEST_CASE("tiles that are walked together share rows and columns", "[kernels][grouped]") {
  const std::vector<std::int32_t> offsets = {0, 40 * kTileRows};
  const GroupedProduct op{
      .num_groups = 1, .offsets = offsets.data(), .columns = 40 * kTileColumns, .depth = 8};
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> columns;
  TileWalk<Product::RowsByRows, kTileRows, kTileColumns> walk(op, 0);
  for (int i = 0; i < 128; ++i, walk.move(1)) {
    rows.push_back(walk.tile().first_row);
    columns.push_back(walk.tile().first_column);
  }
  const auto distinct = [](std::vector<std::int64_t>& values) {
    std::sort(values.begin(), values.end());
    return std::unique(values.begin(), values.end()) - values.begin();
  };
  CHECK(distinct(rows) == 16);
  CHECK(distinct(columns) == 8);
}

}  // namespace

}  // namespace meshplan::kernels::cuda
