#include "train/product_choices.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/paths.hpp"
#include "runtime/os/durable_file.hpp"

namespace meshplan::runtime {
namespace {

/// "nvidia-h100-80gb-hbm3-sm_90-132-sms-cublaslt-130100.gemm"
std::string file_name(const std::string& subject) {
  std::string name;
  for (const char letter : subject) {
    const bool plain = std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
    if (plain)
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  return name + ".gemm";
}

std::string read_if_there(const std::string& path) {
  return is_file(path) ? read_text(path) : "";
}

void broadcast(std::string& text, int root, Communicator& world) {
  std::int64_t size = std::ssize(text);
  world.broadcast(MutableBuffer{&size, 1, DType::I64}, root).wait();
  text.resize(static_cast<std::size_t>(size));
  world.broadcast(MutableBuffer{text.data(), size, DType::U8}, root).wait();
}

/// The lowest rank of those that say yes; the number of ranks if none does.
int lowest_rank(bool yes, Communicator& world) {
  std::int32_t rank = yes ? world.rank() : world.size();
  const MutableBuffer buffer{&rank, 1, DType::I32};
  world.all_reduce(buffer, buffer, ReduceOp::Min).wait();
  return rank;
}

}  // namespace

void agree_on_products(kernels::ProductTuning& tuning, Communicator& world,
                       const std::string& folder,
                       const std::function<void(const std::string&)>& log) {
  const bool leads = world.rank() == 0;
  const auto say = [&](const std::string& line) {
    if (leads && log) log(line);
  };
  const std::string path = folder + "/" + file_name(tuning.subject());
  std::string known = leads ? read_if_there(path) : "";
  broadcast(known, 0, world);
  if (!known.empty())
    if (const std::string error = tuning.adopt(known); !error.empty())
      say(fmt::format("{}: not used: {}", path, error));
  bool timed = false;
  while (true) {
    const int owner = lowest_rank(tuning.misses_choices(), world);
    if (owner == world.size()) break;
    if (world.rank() == owner) tuning.time_products();
    std::string found = world.rank() == owner ? tuning.choices() : "";
    broadcast(found, owner, world);
    // A GPU of another model takes nothing over and has its own turn.
    if (world.rank() != owner) static_cast<void>(tuning.adopt(found));
    timed = true;
  }
  if (!leads || !timed) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError(fmt::format("{}: cannot be made: {}", folder, error.message()));
  write_durably(path, tuning.choices());
  say(fmt::format("matrix products timed; their kernels are kept in {}", path));
}

}  // namespace meshplan::runtime
