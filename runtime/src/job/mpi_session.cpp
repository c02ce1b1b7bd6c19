#include "runtime/job/mpi_session.hpp"

#include <mpi.h>

#include <cstdlib>
#include <exception>
#include <vector>

#include "comm/mpi_channel.hpp"
#include "comm/mpi_check.hpp"
#include "job/rank_card.hpp"
#include "launch/control_port.hpp"
#include "launch/launcher_line.hpp"
#include "launch/launcher_watch.hpp"
#include "runtime/launch/launch.hpp"

namespace meshplan::runtime {
namespace {

constexpr const char* kWorld = "world";

JobLayout find_layout() {
  int rank = 0;
  int size = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank", kWorld);
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size", kWorld);
  const RankCard mine = own_card();
  std::vector<RankCard> cards(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&mine, sizeof(RankCard), MPI_BYTE, cards.data(), sizeof(RankCard),
                          MPI_BYTE, MPI_COMM_WORLD),
            "MPI_Allgather", kWorld);
  return layout_of(rank, cards);
}

/// MPI's transports listen on every interface, although ranks of one machine talk by shared memory.
/// What the user has set stays.
void listen_on_loopback() {
  constexpr int kKeep = 0;
  for (const char* variable : {"UCX_NET_DEVICES", "FI_TCP_IFACE"})
    ::setenv(variable, "lo", kKeep);  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv) {
  end_with_proxy();
  const auto environment = [](const char* name) { return std::getenv(name); };
  const bool alone = is_alone_under_proxy(environment);
  ControlPort control_port;
  if (alone) {
    control_port.close_to_strangers();
    listen_on_loopback();
  }
  const auto outer = detect_outer_launch(environment);
  const int number = outer ? outer->rank : 0;
  using Kind = LauncherMessage::Kind;
  launcher_line().say(Kind::Rank, number, "starting MPI");
  try {
    start(argc, argv);
    control_port.close_to_strangers();  // all ranks have met, so all proxies have called
    launcher_line().say(Kind::Rank, number, "meeting the other ranks");
    layout_ = find_layout();
  } catch (...) {
    launcher_line().say(Kind::Failed, number);
    throw;
  }
  sharpen_naps(layout_);
}

void MpiSession::start(int& argc, char**& argv) {
  int provided = 0;
  // The progress thread calls MPI, too, one of the two threads at a time (progress_engine.hpp).
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread",
            kWorld);
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler",
            kWorld);
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() > 0)
    MPI_Abort(MPI_COMM_WORLD, 1);
  else
    MPI_Finalize();
}

void MpiSession::abort(int exit_code) const {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

std::unique_ptr<Channel> MpiSession::make_channel() const {
  return make_mpi_channel();
}

}  // namespace meshplan::runtime
