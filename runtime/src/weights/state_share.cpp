#include "weights/state_share.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <utility>
#include <xxhash.h>

#include "core/checkpoint_files.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/index.hpp"
#include "execute/arena.hpp"
#include "kernels/backend.hpp"

namespace meshplan::runtime {
namespace {

bool follow_one_another(const PlacedBox& placed) {
  const std::vector<std::int64_t> dense = dense_strides(placed.box.size);
  for (std::size_t d = 0; d < dense.size(); ++d)
    if (placed.box.size[d] > 1 && placed.strides[d] != dense[d]) return false;
  return true;
}

/// Elements of memory from the first of the box to its last.
std::int64_t extent_of(const PlacedBox& placed) {
  std::int64_t extent = 1;
  for (std::size_t d = 0; d < placed.strides.size(); ++d)
    extent += (placed.box.size[d] - 1) * placed.strides[d];
  return extent;
}

/// Joins copies of neighbours: a device starts each copy for a price.
class JoinedCopies {
 public:
  explicit JoinedCopies(kernels::Backend& backend) : backend_(backend) {}
  void add(std::byte* to, const std::byte* from, std::int64_t bytes) {
    if (to == to_ + bytes_ && from == from_ + bytes_) {
      bytes_ += bytes;
      return;
    }
    flush();
    to_ = to;
    from_ = from;
    bytes_ = bytes;
  }
  void flush() {
    if (bytes_ > 0) backend_.copy_to_host(to_, from_, bytes_);
    bytes_ = 0;
  }

 private:
  kernels::Backend& backend_;
  std::byte* to_ = nullptr;
  const std::byte* from_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace

StateShare::StateShare(const program::Program& program, const SaverPlace& place)
    : states_(saved_states(program, place)) {
  for (std::size_t state = 0; state < states_.size(); ++state)
    for (const SnapshotRun& run : snapshot_runs(program, states_[state], place))
      for (PlacedBox& placed : saved_boxes(program, place.coordinates, run.range))
        append(program, state, run, std::move(placed));
  header_ = safetensors_header(specs_, metadata());
}

void StateShare::append(const program::Program& program, std::size_t state, const SnapshotRun& run,
                        PlacedBox placed) {
  const StateRegion& region = states_[state];
  const program::Parameter& parameter = program.parameters[at(placed.parameter)];
  const std::string name = region.name + "." + parameter.name;
  // A share may hold several boxes of a parameter; they follow one another.
  const bool is_first = tensors_.empty() || tensors_.back().state != region.name ||
                        tensors_.back().parameter != parameter.name;
  const int number = is_first ? 0 : pieces_.back().number + 1;
  specs_.push_back({.name = is_first ? name : fmt::format("{}#{}", name, number),
                    .dtype = DType::F32,
                    .shape = placed.box.size});
  if (is_first)
    tensors_.push_back(
        {.state = region.name, .parameter = parameter.name, .shape = parameter.global_shape});
  Piece piece{.state = state,
              .from = run.offset + placed.offset - run.range.begin,
              .to = data_bytes_,
              .tensor = tensors_.size() - 1,
              .number = number,
              .is_dense = region.dtype == DType::F32 && follow_one_another(placed)};
  piece.placed = std::move(placed);
  data_bytes_ += specs_.back().bytes();
  pieces_.push_back(std::move(piece));
}

void StateShare::copy(kernels::Backend& backend, const Arena& arena,
                      std::span<std::byte> data) const {
  require_invariant(std::ssize(data) == data_bytes_, "a share is copied to a place of its size");
  backend.synchronize();
  JoinedCopies copies(backend);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    const std::byte* region = arena.region(states_[piece.state].region);
    std::byte* to = data.data() + piece.to;
    if (piece.is_dense)
      copies.add(to, region + piece.from * size_of(DType::F32), specs_[i].bytes());
    else
      gather(piece, backend, region, to);
  }
  copies.flush();
  backend.synchronize();
}

/// Elements that do not follow one another, or are of another type, by way of a copy of all that
/// lies between the first and the last.
void StateShare::gather(const Piece& piece, kernels::Backend& backend, const std::byte* region,
                        std::byte* to) const {
  const DType dtype = states_[piece.state].dtype;
  std::vector<std::byte> staging(
      static_cast<std::size_t>(extent_of(piece.placed) * size_of(dtype)));
  backend.copy_to_host(staging.data(), region + piece.from * size_of(dtype), std::ssize(staging));
  backend.synchronize();
  copy_overlap({.data = staging.data(),
                .dtype = dtype,
                .box = piece.placed.box,
                .strides = piece.placed.strides},
               {.data = reinterpret_cast<float*>(to),
                .box = piece.placed.box,
                .strides = dense_strides(piece.placed.box.size)});
}

std::vector<std::uint64_t> StateShare::hashes(std::span<const std::byte> data) const {
  std::vector<std::uint64_t> hashes;
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    hashes.push_back(
        XXH3_64bits(data.data() + pieces_[i].to, static_cast<std::size_t>(specs_[i].bytes())));
  return hashes;
}

CheckpointManifest StateShare::manifest(int rank, std::span<const std::uint64_t> hashes) const {
  const std::string file = checkpoint_share_name(rank);
  CheckpointManifest manifest{.files = {{.name = file, .bytes = file_bytes()}},
                              .tensors = tensors_};
  manifest.files.front().hash = data_hash(header_);
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    manifest.tensors[pieces_[i].tensor].pieces.push_back({.file = file,
                                                          .tensor = specs_[i].name,
                                                          .begin = pieces_[i].placed.box.begin,
                                                          .size = pieces_[i].placed.box.size,
                                                          .hash = hex(hashes[i])});
  return manifest;
}

CheckpointManifest merged(std::vector<CheckpointManifest> shares) {
  CheckpointManifest all;
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (CheckpointManifest& share : shares) {
    std::ranges::move(share.files, std::back_inserter(all.files));
    for (CheckpointTensor& tensor : share.tensors) {
      const auto [place, is_new] =
          places.try_emplace({tensor.state, tensor.parameter}, all.tensors.size());
      if (is_new)
        all.tensors.push_back(std::move(tensor));
      else
        std::ranges::move(tensor.pieces, std::back_inserter(all.tensors[place->second].pieces));
    }
  }
  return all;
}

}  // namespace meshplan::runtime
