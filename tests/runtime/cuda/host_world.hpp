// The job over MPI that a rank's communicators on GPUs start from.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.hpp"

namespace meshplan::test {

/// What never ends.
class Unanswered final : public runtime::PendingOperation {
 public:
  bool test() override { return false; }
  void wait(std::optional<Seconds> limit) override {
    REQUIRE(limit);  // else the job hangs
    throw runtime::CommTimeout("recv", "world", std::nullopt, "not ended");
  }
};

/// Rank 0 of a job over MPI, in which some ranks send nothing.
class HostWorld final : public runtime::Communicator {
 public:
  HostWorld(int size, std::vector<int> absent) : absent_(std::move(absent)), ranks_(at(size)) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }
  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  const std::string& name() const override { return name_; }
  const std::vector<int>& world_ranks() const override { return ranks_; }
  std::unique_ptr<runtime::Communicator> create_group(std::span<const int> /*ranks*/,
                                                      std::string_view /*name*/) override {
    return nullptr;
  }
  runtime::Handle all_reduce(runtime::ConstBuffer /*send*/, runtime::MutableBuffer /*recv*/,
                             runtime::ReduceOp /*op*/) override {
    return {};
  }
  runtime::Handle reduce_scatter(runtime::ConstBuffer /*send*/, runtime::MutableBuffer /*recv*/,
                                 runtime::ReduceOp /*op*/) override {
    return {};
  }
  runtime::Handle all_gather(runtime::ConstBuffer /*send*/,
                             runtime::MutableBuffer /*recv*/) override {
    return {};
  }
  runtime::Handle all_to_all(runtime::ConstBuffer /*send*/,
                             runtime::MutableBuffer /*recv*/) override {
    return {};
  }
  runtime::Handle all_to_all_v(runtime::ConstBuffer /*send*/,
                               std::span<const std::int64_t> /*send_counts*/,
                               runtime::MutableBuffer /*recv*/,
                               std::span<const std::int64_t> /*recv_counts*/) override {
    return {};
  }
  runtime::Handle broadcast(runtime::MutableBuffer /*buffer*/, int /*root*/) override { return {}; }
  runtime::Handle barrier() override { return {}; }
  runtime::Handle send(runtime::ConstBuffer /*buffer*/, int /*peer*/, int /*tag*/) override {
    return {};
  }
  runtime::Handle recv(runtime::MutableBuffer /*buffer*/, int peer, int /*tag*/) override {
    const bool comes = std::ranges::find(absent_, peer) == absent_.end();
    return comes ? runtime::Handle()
                 : runtime::Handle(runtime::PendingOperationPtr(new Unanswered));
  }
  runtime::Handle send_recv(std::span<const runtime::Transfer> /*transfers*/) override {
    return {};
  }

 private:
  static std::size_t at(int size) { return static_cast<std::size_t>(size); }
  std::vector<int> absent_;
  std::vector<int> ranks_;
  std::string name_ = "world";
};

}  // namespace meshplan::test
