#include "runtime/mpi_session.hpp"

#include <mpi.h>

#include <cstdlib>
#include <exception>
#include <vector>

#include "mpi_channel.hpp"
#include "mpi_check.hpp"
#include "rank_card.hpp"

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

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv) {
  int provided = 0;
  // The progress thread calls MPI, too, one of the two threads at a time (progress_engine.hpp).
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread",
            kWorld);
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler",
            kWorld);
  layout_ = find_layout();
  sharpen_naps(layout_);
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
