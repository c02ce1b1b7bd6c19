// A small "training loop" for failure_test.sh: each rank waits for its neighbour in a ring, then
// one of them misbehaves. Usage: failure_victim MODE [VICTIM] [TIMEOUT_S]
// [one-machine|many-machines] [progress-thread]
// or, for a rank that leaves during start-up:  failure_victim early-kill|kill-in-init|exit-in-init
// VICTIM AFTER_S or, as meshplan run:  failure_victim launch HOSTS ...
#include <mpi.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "comm/host_communicator.hpp"
#include "guard/watchdog.hpp"
#include "runtime/job/mpi_session.hpp"
#include "runtime/job/run_rank.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/os/host_info.hpp"
#include "runtime/train/train.hpp"

namespace {

using namespace meshplan;
using namespace meshplan::runtime;

struct Arguments {
  std::string mode = "finish";
  int victim = 1;
  double timeout_s = 2;
  bool many_machines = false;
  bool progress_thread = false;
};

void misbehave(const Arguments& arguments) {
  if (arguments.mode == "kill") ::kill(::getpid(), SIGKILL);
  if (arguments.mode == "stop") ::kill(::getpid(), SIGSTOP);
  if (arguments.mode == "exit") std::_Exit(7);
  if (arguments.mode == "throw") throw std::runtime_error("the victim's own message");
  if (arguments.mode == "memory") {
    const auto held = static_cast<rlim_t>(resident_bytes());
    const rlimit limit{held + (rlim_t{64} << 30), held + (rlim_t{64} << 30)};
    setrlimit(RLIMIT_AS, &limit);
    constexpr std::size_t kMuch = std::size_t{1} << 40;
    const std::vector<char> much(kMuch);
    throw std::logic_error(fmt::format("{} bytes were granted", much.size()));
  }
  if (arguments.mode == "hog")
    for (std::vector<std::vector<char>> held;;) held.emplace_back(std::size_t{32} << 20, 'x');
  if (arguments.mode == "spin")
    while (true) ::usleep(1000);
}

/// Nothing is left to be done but to end.
void misbehave_at_end(const Arguments& arguments) {
  if (arguments.mode == "stop-at-end") ::kill(::getpid(), SIGSTOP);
  if (arguments.mode == "spin-at-end")
    while (true) ::usleep(1000);
}

/// All ranks agree on whether the file is there that tells them to end.
bool is_to_end(Communicator& world) {
  float there = std::filesystem::exists(std::getenv("END_FILE")) ? 1 : 0;
  world.all_reduce({&there, 1, DType::F32}, {&there, 1, DType::F32}, ReduceOp::Max).wait();
  return there > 0;
}

int train(const MpiSession& session, const Arguments& arguments) {
  JobLayout layout = session.layout();
  if (arguments.many_machines) {  // each rank believes that it is alone on its machine
    std::iota(layout.machine_of_rank.begin(), layout.machine_of_rank.end(), 0);
    layout.cores_of_machine.assign(layout.machine_of_rank.size(), 1);
  }
  const auto setup = make_host_world(session, {});
  const char* report_socket = std::getenv(kReportSocketVariable);
  Watchdog watchdog(*setup, layout,
                    {.hang_timeout = Seconds{arguments.timeout_s},
                     .report_socket = report_socket == nullptr ? "" : report_socket});
  HostWorldOptions options;
  options.observer = &watchdog.board();
  const auto world = make_host_world(session, options);
  if (arguments.progress_thread) world->progress_in_background(true);
  const int rank = world->rank();
  const bool lasts = arguments.mode == "last" || arguments.mode == "wait";
  const int num_steps = lasts ? 1'000'000 : 6;
  for (int step = 0; step < num_steps; ++step) {
    if (arguments.mode == "wait" && is_to_end(*world)) break;
    watchdog.board().set(fmt::format("step {}, stage {}, computing F mb{}", step, rank, step));
    ::usleep(20'000);
    if (step == 3 && rank == arguments.victim) misbehave(arguments);
    watchdog.board().set(fmt::format("step {}, stage {}, pp recv of F mb{}", step, rank, step));
    const bool deadlock = arguments.mode == "deadlock" && step == 3;
    float mine = 1;
    float theirs = 0;
    Handle send;
    if (!deadlock) send = world->send({&mine, 1, DType::F32}, (rank + 1) % world->size());
    world->recv({&theirs, 1, DType::F32}, (rank + world->size() - 1) % world->size()).wait();
    send.wait();
  }
  world->barrier().wait();
  if (arguments.mode == "wait" && rank == 0) fmt::print("ranks finish\n");
  return 0;
}

bool leaves_in_init = false;

/// A rank that leaves before it has met the others.
void leave_early(const Arguments& arguments) {
  const auto outer = detect_outer_launch([](const char* name) { return std::getenv(name); });
  if (!outer || outer->rank != arguments.victim) return;
  if (arguments.mode == "early-kill") ::kill(::getpid(), SIGKILL);
  leaves_in_init = arguments.mode == "exit-in-init";
  if (arguments.mode != "kill-in-init") return;
  std::signal(SIGALRM, SIG_DFL);
  ::ualarm(static_cast<useconds_t>(1e6 * arguments.timeout_s), 0);
}

}  // namespace

/// What MPI calls between a program and itself.
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  if (leaves_in_init) std::_Exit(0);
  return PMPI_Init_thread(argc, argv, required, provided);
}

int main(int argc, char** argv) {
  if (argc > 3 && std::string_view(argv[1]) == "launch") {
    LaunchSpec spec{.ranks = 4, .hosts = parse_host_list(argv[2]), .command = {argv[0]}};
    spec.command.insert(spec.command.end(), argv + 3, argv + argc);
    return launch_ranks(spec);
  }
  Arguments arguments;
  if (argc > 1) arguments.mode = argv[1];
  if (argc > 2) arguments.victim = std::atoi(argv[2]);
  if (argc > 3) arguments.timeout_s = std::atof(argv[3]);
  if (argc > 4) arguments.many_machines = std::string_view(argv[4]) == "many-machines";
  if (argc > 5) arguments.progress_thread = std::string_view(argv[5]) == "progress-thread";
  leave_early(arguments);
  const MpiSession session(argc, argv);
  return run_rank(session, [&] {
    const int code = train(session, arguments);
    if (session.layout().rank == arguments.victim) misbehave_at_end(arguments);
    return code;
  });
}
