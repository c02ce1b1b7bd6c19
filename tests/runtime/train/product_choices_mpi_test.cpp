#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "comm/host_communicator.hpp"
#include "mpi_test_session.hpp"
#include "runtime/temporary_folder.hpp"
#include "train/product_choices.hpp"

namespace meshplan::test {
namespace {

using runtime::agree_on_products;
using runtime::Communicator;

/// Every rank finds itself fastest: what all say in the end tells who timed.
class FakeTuning final : public kernels::ProductTuning {
 public:
  FakeTuning(int rank, std::set<std::string> products)
      : rank_(rank), products_(std::move(products)) {}

  std::string subject() const override { return "Some GPU, library 7"; }
  bool misses_choices() override {
    for (const std::string& product : products_)
      if (!chosen.contains(product)) return true;
    return false;
  }
  void time_products() override {
    ++timings;
    for (const std::string& product : products_) chosen.emplace(product, rank_);
  }
  std::string choices() const override {
    std::string text = subject() + "\n";
    for (const auto& [product, rank] : chosen) text += product + " " + std::to_string(rank) + "\n";
    return text;
  }
  std::string adopt(const std::string& text) override {
    std::istringstream lines(text);
    std::string first;
    std::getline(lines, first);
    if (first != subject()) return "it is damaged";
    std::string product;
    for (int rank = 0; lines >> product >> rank;) chosen.emplace(product, rank);
    return "";
  }

  std::map<std::string, int> chosen;
  int timings = 0;

 private:
  int rank_;
  std::set<std::string> products_;
};

/// The first ranks have another layer than the last one has.
std::set<std::string> products_of(const Communicator& world) {
  return world.rank() + 1 < world.size() ? std::set<std::string>{"qkv", "mlp"}
                                         : std::set<std::string>{"mlp", "head"};
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("All ranks run what the lowest one that has a product chose", "[runtime][mpi]") {
  const auto job = runtime::make_host_world(mpi_session(), {});
  Communicator& world = *job;
  const TemporaryFolder folder;  // rank 0's is used
  const std::string file = folder.path() + "/gpus/some-gpu-library-7.gemm";
  const int last = world.size() - 1;
  std::string said;
  const auto log = [&](const std::string& line) { said += line + "\n"; };

  FakeTuning first(world.rank(), products_of(world));
  agree_on_products(first, world, folder.path() + "/gpus", log);
  CHECK(first.chosen.at("mlp") == 0);
  CHECK(first.chosen.at("head") == last);
  if (last > 0) CHECK(first.chosen.at("qkv") == 0);
  CHECK(first.timings == (world.rank() == 0 || world.rank() == last ? 1 : 0));
  if (world.rank() == 0) CHECK(text_of(file) == first.choices());

  FakeTuning second(world.rank() + 100, products_of(world));  // it would choose otherwise
  agree_on_products(second, world, folder.path() + "/gpus", log);
  CHECK(second.timings == 0);
  CHECK(second.chosen == first.chosen);
}

TEST_CASE("A damaged file of choices is said, and replaced", "[runtime][mpi]") {
  const auto job = runtime::make_host_world(mpi_session(), {});
  Communicator& world = *job;
  const TemporaryFolder folder;  // rank 0's is used
  const std::string file = folder.path() + "/some-gpu-library-7.gemm";
  if (world.rank() == 0) folder.file("some-gpu-library-7.gemm", "no choices");
  std::string said;
  FakeTuning tuning(world.rank(), products_of(world));
  agree_on_products(tuning, world, folder.path(), [&](const std::string& line) { said += line; });
  if (world.rank() == 0) CHECK(text_of(file) == tuning.choices());
  CHECK((said.find("not used: it is damaged") != std::string::npos) == (world.rank() == 0));
}

}  // namespace meshplan::test
