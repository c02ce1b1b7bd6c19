// A communicator that does what another does: what changes some of its calls derives from it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// Groups are left to who derives, who knows what wraps them.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  const std::vector<int>& world_ranks() const override { return inner_->world_ranks(); }
  void queue_on(void* queue) override { inner_->queue_on(queue); }
  void progress_in_background(bool on) override { inner_->progress_in_background(on); }
  Handle all_reduce(ConstBuffer send, MutableBuffer recv, ReduceOp op) override {
    return inner_->all_reduce(send, recv, op);
  }
  Handle reduce_scatter(ConstBuffer send, MutableBuffer recv, ReduceOp op) override {
    return inner_->reduce_scatter(send, recv, op);
  }
  Handle all_gather(ConstBuffer send, MutableBuffer recv) override {
    return inner_->all_gather(send, recv);
  }
  Handle all_to_all(ConstBuffer send, MutableBuffer recv) override {
    return inner_->all_to_all(send, recv);
  }
  Handle all_to_all_v(ConstBuffer send, std::span<const std::int64_t> send_counts,
                      MutableBuffer recv, std::span<const std::int64_t> recv_counts) override {
    return inner_->all_to_all_v(send, send_counts, recv, recv_counts);
  }
  Handle broadcast(MutableBuffer buffer, int root) override {
    return inner_->broadcast(buffer, root);
  }
  Handle barrier() override { return inner_->barrier(); }
  Handle send(ConstBuffer buffer, int peer, int tag) override {
    return inner_->send(buffer, peer, tag);
  }
  Handle recv(MutableBuffer buffer, int peer, int tag) override {
    return inner_->recv(buffer, peer, tag);
  }
  Handle send_recv(std::span<const Transfer> transfers) override {
    return inner_->send_recv(transfers);
  }

 protected:
  Communicator& inner() { return *inner_; }

 private:
  std::unique_ptr<Communicator> inner_;
};

}  // namespace meshplan::runtime
