#include "measure/host_load.hpp"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <unistd.h>

#include "core/index.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/os/host_info.hpp"

namespace meshplan::runtime {
namespace {

CoreSeconds own_cores() {
  std::ifstream file("/proc/stat");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return parse_core_seconds(text, detect_host().cores, static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

}  // namespace

CoreSeconds parse_core_seconds(std::string_view stat, const std::vector<int>& cores,
                               double ticks_per_s) {
  CoreSeconds seconds;
  std::istringstream lines{std::string(stat)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("cpu") || line.starts_with("cpu ")) continue;
    std::istringstream fields(line.substr(3));
    int core = -1;
    fields >> core;
    if (std::ranges::find(cores, core) == cores.end()) continue;
    // user nice system idle iowait irq softirq steal; guest time is in user already.
    constexpr int kFields = 8, kIdle = 3, kIoWait = 4;
    for (int field = 0; field < kFields; ++field) {
      double ticks = 0;
      if (!(fields >> ticks)) break;
      seconds.all += ticks / ticks_per_s;
      if (field != kIdle && field != kIoWait) seconds.busy += ticks / ticks_per_s;
    }
  }
  return seconds;
}

double process_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double other_cores(const CoreSeconds& used, double own_s, double wall_s, int num_cores) {
  constexpr double kShortest = 0.2;  // the kernel counts in hundredths
  if (used.all <= 0 || wall_s < kShortest) return 0;
  return std::clamp(used.busy / used.all * num_cores - own_s / wall_s, 0.0,
                    static_cast<double>(num_cores));
}

HostLoad::HostLoad(const JobLayout& layout)
    : layout_(layout),
      cores_(own_cores()),
      own_s_(process_seconds()),
      since_s_(monotonic_seconds()) {}

void HostLoad::measure(Communicator& world, program::MachineSpeed& speed) {
  // Figures of each machine, summed over its ranks: busy and all seconds of the cores that each may
  // run on (these are the same for all or each rank's own), seconds of the ranks, and how long it
  // took.
  constexpr std::size_t kFigures = 4;
  std::vector<double> figures(kFigures * static_cast<std::size_t>(layout_.num_machines()));
  const CoreSeconds now = own_cores();
  const double own_s = process_seconds(), at_s = monotonic_seconds();
  double* mine = figures.data() + kFigures * static_cast<std::size_t>(layout_.machine());
  mine[0] = now.busy - cores_.busy;
  mine[1] = now.all - cores_.all;
  mine[2] = own_s - own_s_;
  mine[3] = at_s - since_s_;
  cores_ = now;
  own_s_ = own_s;
  since_s_ = at_s;
  const MutableBuffer buffer{figures.data(), std::ssize(figures), DType::F64};
  world.all_reduce(buffer, buffer, ReduceOp::Sum).wait();
  speed.cores = 0;
  for (int machine = 0; machine < layout_.num_machines(); ++machine) {
    const double* of = figures.data() + kFigures * static_cast<std::size_t>(machine);
    const int ranks = static_cast<int>(layout_.ranks_on(machine).size());
    const int cores = layout_.cores_of_machine[at(machine)];
    const double others = other_cores({of[0], of[1]}, of[2], of[3] / ranks, cores);
    if (speed.cores > 0 && others <= speed.other_cores) continue;
    speed.other_cores = others;
    speed.cores = cores;
    speed.ranks_on_host = ranks;
  }
}

}  // namespace meshplan::runtime
