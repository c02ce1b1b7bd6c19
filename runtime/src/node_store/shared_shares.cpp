#include "node_store/shared_shares.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <thread>
#include <utility>

#include "core/checkpoint_files.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "node_store/all_ranks.hpp"
#include "weights/loadable_values.hpp"

namespace meshplan::runtime {
namespace {

constexpr int kRequestTag = 0;
constexpr int kReplyTag = 1;

/// @param data  of the piece, dense
void copy_box(std::span<const std::byte> data, const CheckpointPiece& piece,
              const TensorTarget& target) {
  copy_overlap({.data = data.data(),
                .dtype = DType::F32,
                .box = {piece.begin, piece.size},
                .strides = dense_strides(piece.size)},
               target);
}

}  // namespace

SharedShares::SharedShares(Communicator& world, CheckpointIndex index,
                           std::vector<ServedShare> shares, std::string label)
    : group_(group_of_all(world, "shares of the state")),
      index_(std::move(index)),
      shares_(std::move(shares)),
      label_(std::move(label)),
      clients_(static_cast<std::size_t>(world.size())) {
  for (std::size_t i = 0; i < index_.manifest.tensors.size(); ++i) {
    const CheckpointTensor& tensor = index_.manifest.tensors[i];
    tensors_[{tensor.state, tensor.parameter}] = i;
  }
  for (std::size_t rank = 0; rank < shares_.size(); ++rank) {
    share_of_file_[checkpoint_share_name(static_cast<int>(rank))] = rank;
    const ServedShare& share = shares_[rank];
    if (share.server == world.rank())  // open from here on, whoever removes it
      files_[share.path] = std::make_unique<SafetensorsFile>(share.path);
  }
  for (int peer = 0; peer < group_->size(); ++peer) {
    clients_[at(peer)].is_done = peer == group_->rank();
    listen(peer);
  }
}

SharedShares::~SharedShares() = default;

const ServedShare& SharedShares::share_of(const CheckpointPiece& piece) const {
  return shares_[share_of_file_.at(piece.file)];
}

std::span<const std::byte> SharedShares::data_of(const CheckpointPiece& piece) {
  const std::string& path = share_of(piece).path;
  auto& file = files_[path];
  if (file == nullptr) file = std::make_unique<SafetensorsFile>(path);
  return file->at(piece.tensor).data;
}

void SharedShares::read(const std::string& state, const std::string& parameter,
                        const TensorTarget& target) {
  const auto found = tensors_.find({state, parameter});
  if (found == tensors_.end())
    throw ConfigError(fmt::format("{}: holds no {} of {}", label_, state, parameter));
  const CheckpointTensor& tensor = index_.manifest.tensors[found->second];
  std::int64_t copied = 0;
  for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
    const CheckpointPiece& piece = tensor.pieces[i];
    const auto both = intersection({piece.begin, piece.size}, target.box);
    if (!both) continue;
    copied += both->elements();
    if (share_of(piece).is_here)
      copy_box(data_of(piece), piece, target);
    else
      read_remote(found->second, i, *both, target);
    serve();
  }
  if (copied != target.box.elements())
    throw ConfigError(fmt::format("{}: only {} of {} elements of {} of {} are there", label_,
                                  copied, target.box.elements(), state, parameter));
}

void SharedShares::read_remote(std::size_t tensor, std::size_t piece, const TensorBox& box,
                               const TensorTarget& target) {
  require_invariant(box.size.size() <= Request::kMostDims,
                    "a tensor of a model has few dimensions");
  Request request{.tensor = static_cast<std::int64_t>(tensor),
                  .piece = static_cast<std::int64_t>(piece)};
  std::ranges::copy(box.begin, request.begin);
  std::ranges::copy(box.size, request.size);
  const int server = share_of(index_.manifest.tensors[tensor].pieces[piece]).server;
  std::vector<float> values(static_cast<std::size_t>(box.elements()));
  Handle asked = group_->send(
      {&request, static_cast<std::int64_t>(sizeof request / sizeof(std::int64_t)), DType::I64},
      server, kRequestTag);
  Handle reply = group_->recv({values.data(), std::ssize(values), DType::F32}, server, kReplyTag);
  while (!reply.test() || !asked.test()) serve();
  copy_overlap({.data = reinterpret_cast<const std::byte*>(values.data()),
                .dtype = DType::F32,
                .box = box,
                .strides = dense_strides(box.size)},
               target);
}

void SharedShares::listen(int peer) {
  Client& client = clients_[at(peer)];
  if (client.is_done) return;
  client.asks =
      group_->recv({&client.request,
                    static_cast<std::int64_t>(sizeof(Request) / sizeof(std::int64_t)), DType::I64},
                   peer, kRequestTag);
}

/// Answers who has asked, and lets others have the core if nobody has.
void SharedShares::serve() {
  bool is_idle = true;
  for (int peer = 0; peer < group_->size(); ++peer) {
    Client& client = clients_[at(peer)];
    if (client.is_done || !client.asks.test() || !client.reply.test()) continue;
    is_idle = false;
    if (client.request.tensor == kNoMore)
      client.is_done = true;
    else
      answer(peer);
  }
  if (is_idle) std::this_thread::yield();
}

void SharedShares::answer(int peer) {
  Client& client = clients_[at(peer)];
  const Request& request = client.request;
  const CheckpointTensor& tensor =
      index_.manifest.tensors[static_cast<std::size_t>(request.tensor)];
  const CheckpointPiece& piece = tensor.pieces[static_cast<std::size_t>(request.piece)];
  TensorBox box;
  box.begin.assign(request.begin, request.begin + piece.size.size());
  box.size.assign(request.size, request.size + piece.size.size());
  client.values.resize(static_cast<std::size_t>(box.elements()));
  copy_box(data_of(piece), piece,
           {.data = client.values.data(), .box = box, .strides = dense_strides(box.size)});
  client.reply =
      group_->send({client.values.data(), std::ssize(client.values), DType::F32}, peer, kReplyTag);
  listen(peer);
}

std::string SharedShares::not_finite(const std::string& state, const std::string& parameter,
                                     DType dtype) {
  const CheckpointTensor& tensor = index_.manifest.tensors[tensors_.at({state, parameter})];
  for (const CheckpointPiece& piece : tensor.pieces) {
    if (!share_of(piece).is_here) continue;
    if (const auto found = describe_not_finite(
            share_of(piece).path, piece.tensor,
            {.dtype_name = "F32", .shape = piece.size, .data = data_of(piece)}, dtype))
      return *found;
  }
  return "";
}

void SharedShares::finish() {
  const Request no_more{.tensor = kNoMore};
  std::vector<Handle> told;
  for (int peer = 0; peer < group_->size(); ++peer)
    if (peer != group_->rank())
      told.push_back(group_->send(
          {&no_more, static_cast<std::int64_t>(sizeof no_more / sizeof(std::int64_t)), DType::I64},
          peer, kRequestTag));
  const auto is_done = [](const Client& client) { return client.is_done; };
  while (!std::ranges::all_of(clients_, is_done)) serve();
  for (Client& client : clients_) client.reply.wait();
  for (Handle& one : told) one.wait();
  files_.clear();
}

}  // namespace meshplan::runtime
