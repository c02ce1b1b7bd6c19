// Which tiles the results of grouped products have.
#pragma once

#include "device/device.cuh"
#include "products/grouped_product.hpp"

namespace meshplan::kernels::cuda {

/// A tile of a group's result and what it is summed over: rows and depth count from the first group
/// where groups divide them.
struct GroupedTile {
  std::int64_t group;
  std::int64_t first_row, end_row;  // end: of the group's rows
  std::int64_t first_column;
  std::int64_t begin, end;  // of the depth
};

/// Walks the tiles of all groups: only the device knows how many rows a group has. Tiles that are
/// walked at the same time share rows and columns, so that these come from L2: a panel of
/// kPanelTiles rows of tiles is walked column by column. 16 x 128 rows by 8 x 256 columns are the
/// square that 128 blocks fill.
template <Product product, int kTileRows, int kTileColumns>
class TileWalk {
 public:
  /// Stands at tile `first`.
  __device__ TileWalk(const GroupedProduct& op, std::int64_t first) : op_(op) {
    end_ = op.offsets[0];
    enter(0);
    move(first);
  }
  __device__ bool ended() const { return group_ >= op_.num_groups; }
  __device__ void move(std::int64_t count) {
    number_ += count;
    while (group_ < op_.num_groups && number_ >= tiles_) {
      number_ -= tiles_;
      enter(group_ + 1);
    }
  }
  /// Must not have ended.
  __device__ GroupedTile tile() const {
    const std::int64_t panel_tiles = kPanelTiles * column_tiles();
    const std::int64_t panel = number_ / panel_tiles;
    const std::int64_t in_panel = number_ % panel_tiles;
    const std::int64_t rows_left = row_tiles() - panel * kPanelTiles;
    const std::int64_t rows = rows_left < kPanelTiles ? rows_left : kPanelTiles;
    const std::int64_t first_row = (panel * kPanelTiles + in_panel % rows) * kTileRows;
    const std::int64_t first_column = in_panel / rows * kTileColumns;
    if constexpr (kGroupsDivideDepth)
      return {group_, first_row, op_.rows, first_column, begin_, end_};
    else
      return {group_, begin_ + first_row, end_, first_column, 0, op_.depth};
  }

 private:
  static constexpr bool kGroupsDivideDepth = product == Product::ColumnsByColumns;
  static constexpr std::int64_t kPanelTiles = 16;

  __device__ std::int64_t row_tiles() const {
    return ((kGroupsDivideDepth ? op_.rows : end_ - begin_) + kTileRows - 1) / kTileRows;
  }
  __device__ std::int64_t column_tiles() const {
    return (op_.columns + kTileColumns - 1) / kTileColumns;
  }
  __device__ void enter(std::int64_t group) {
    group_ = group;
    if (ended()) return;
    begin_ = end_;
    end_ = op_.offsets[group + 1];
    tiles_ = row_tiles() * column_tiles();
  }

  const GroupedProduct& op_;
  std::int64_t group_ = 0;
  std::int32_t begin_ = 0;
  std::int32_t end_ = 0;
  std::int64_t tiles_ = 0;
  std::int64_t number_ = 0;  // within the group
};

}  // namespace meshplan::kernels::cuda
