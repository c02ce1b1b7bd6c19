#include "runtime/mpi_session.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <map>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "mpi_check.hpp"

namespace meshplan::runtime {
namespace {

constexpr const char* kWorld = "world";

std::string link_target(const char* path) {
  char text[128] = {};
  const auto length = readlink(path, text, sizeof(text) - 1);
  return length > 0 ? std::string(text, static_cast<std::size_t>(length)) : std::string();
}

/// Ranks with equal keys can share memory and see one another's processes.
std::uint64_t machine_key() {
  std::ifstream boot_id("/proc/sys/kernel/random/boot_id");
  std::string key((std::istreambuf_iterator<char>(boot_id)), std::istreambuf_iterator<char>());
  if (key.empty()) {
    char name[256] = {};
    gethostname(name, sizeof(name) - 1);
    key = name;
  }
  return content_hash(key + link_target("/proc/self/ns/ipc") + link_target("/proc/self/ns/pid"));
}

/// What each rank tells all others at the start.
struct RankCard {
  std::uint64_t machine = 0;
  cpu_set_t cores;
  char host[128];
};

RankCard own_card() {
  RankCard card;
  std::memset(static_cast<void*>(&card), 0, sizeof(card));
  card.machine = machine_key();
  CPU_ZERO(&card.cores);
  sched_getaffinity(0, sizeof(card.cores), &card.cores);
  // Hydra's name of the host, as in the host file; else the kernel's.
  const char* given = std::getenv("MPIR_CVAR_CH3_INTERFACE_HOSTNAME");
  if (given != nullptr)
    std::strncpy(card.host, given, sizeof(card.host) - 1);
  else
    gethostname(card.host, sizeof(card.host) - 1);
  return card;
}

JobLayout find_layout() {
  JobLayout layout;
  int size = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &layout.rank), "MPI_Comm_rank", kWorld);
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size", kWorld);
  const RankCard mine = own_card();
  std::vector<RankCard> cards(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&mine, sizeof(RankCard), MPI_BYTE, cards.data(), sizeof(RankCard),
                          MPI_BYTE, MPI_COMM_WORLD),
            "MPI_Allgather", kWorld);
  std::map<std::uint64_t, int> machines;
  std::vector<cpu_set_t> cores;
  for (const RankCard& card : cards) {
    const auto [place, is_new] =
        machines.try_emplace(card.machine, static_cast<int>(machines.size()));
    if (is_new) cores.push_back(card.cores);
    cpu_set_t& all = cores[static_cast<std::size_t>(place->second)];
    CPU_OR(&all, &all, &card.cores);
    layout.machine_of_rank.push_back(place->second);
    layout.host_of_rank.emplace_back(card.host);
  }
  for (const cpu_set_t& set : cores) layout.cores_of_machine.push_back(CPU_COUNT(&set));
  return layout;
}

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv) {
  int provided = 0;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread",
            kWorld);
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler",
            kWorld);
  layout_ = find_layout();
  // Naps while waiting end on time, not up to 50 us late: with two ranks a core an 8-byte
  // all-reduce takes 0.18 ms instead of 0.30 ms. With four a core the later turns are the better
  // ones.
  constexpr unsigned long kTimerSlackNanoseconds = 1000;
  const auto machine = static_cast<std::size_t>(layout_.machine());
  if (std::ssize(layout_.ranks_on(layout_.machine())) <= 2 * layout_.cores_of_machine[machine])
    prctl(PR_SET_TIMERSLACK, kTimerSlackNanoseconds);
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

int run_rank(const MpiSession& session, const std::function<int()>& work) {
  const auto fail = [&](const std::exception& error, int exit_code) {
    const auto rank = static_cast<std::size_t>(session.rank());
    const std::string line = fmt::format("meshplan: rank {} on {}: {}\n", rank,
                                         session.layout().host_of_rank[rank], error.what());
    // Rank 0 speaks for all, and ends them: the others only make sure that the job ends.
    const bool silent = session.rank() != 0 && dynamic_cast<const SharedError*>(&error) != nullptr;
    // One write: lines of several ranks must not mix.
    [[maybe_unused]] const auto written =
        silent ? 0 : ::write(STDERR_FILENO, line.data(), line.size());
    if (session.size() > 1) {
      constexpr useconds_t kForwardingUs = 100'000;
      constexpr useconds_t kForRankZeroUs = 2'000'000;
      // mpiexec forwards lines and aborts by different ways; without this 1 of 50 lines was lost.
      ::usleep(silent ? kForRankZeroUs : kForwardingUs);
      session.abort(exit_code);
    }
    return exit_code;
  };
  try {
    return work();
  } catch (const ConfigError& error) {
    return fail(error, 2);
  } catch (const InfeasibleError& error) {
    return fail(error, 3);
  } catch (const std::exception& error) {
    return fail(error, 1);
  }
}

}  // namespace meshplan::runtime
