// A small "training loop" for failure_test.sh: each rank waits for its neighbour in a ring, then
// one of them misbehaves. Usage: failure_victim MODE [VICTIM] [TIMEOUT_S]
// [one-machine|many-machines] [progress-thread]
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unistd.h>

#include "runtime/host_communicator.hpp"
#include "runtime/launch.hpp"
#include "runtime/mpi_session.hpp"
#include "runtime/watchdog.hpp"

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
  if (arguments.mode == "spin")
    while (true) ::usleep(1000);
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
  for (int step = 0; step < 6; ++step) {
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
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 3 && std::string_view(argv[1]) == "launch") {
    LaunchSpec spec{.ranks = 4, .hosts = parse_host_list(argv[2]), .command = {argv[0]}};
    spec.command.insert(spec.command.end(), argv + 3, argv + argc);
    return launch_ranks(spec);
  }
  const MpiSession session(argc, argv);
  Arguments arguments;
  if (argc > 1) arguments.mode = argv[1];
  if (argc > 2) arguments.victim = std::atoi(argv[2]);
  if (argc > 3) arguments.timeout_s = std::atof(argv[3]);
  if (argc > 4) arguments.many_machines = std::string_view(argv[4]) == "many-machines";
  if (argc > 5) arguments.progress_thread = std::string_view(argv[5]) == "progress-thread";
  return run_rank(session, [&] { return train(session, arguments); });
}
