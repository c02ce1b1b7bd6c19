#include "launch/launcher_watch.hpp"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <ranges>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/printable.hpp"

namespace meshplan::runtime {
namespace {

constexpr const char* kMpiexec = "mpiexec";
constexpr const char* kSlurmStep = "slurmstepd";

/// Up to MPI's proxy and the mpiexec above it, if there is one; else the parent alone.
std::vector<int> starters_of(int parent) {
  std::vector<int> chain{parent};
  for (const int pid : ancestors_of(parent)) chain.push_back(pid);
  const auto proxy = std::ranges::find(chain, std::string(kProxyName), name_of);
  if (proxy == chain.end()) return {parent};
  const bool mpiexec_is_here =
      proxy + 1 != chain.end() && name_of(*(proxy + 1)).starts_with(kMpiexec);
  chain.erase(proxy + (mpiexec_is_here ? 2 : 1), chain.end());
  std::ranges::reverse(chain);
  return chain;
}

bool ignores_hangup() {
  struct sigaction action {};
  return sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

std::string role_of(const std::string& name) {
  if (name == kProxyName) return "MPI's proxy on this machine, hydra_pmi_proxy";
  if (name.starts_with(kMpiexec)) return "its launcher, mpiexec";
  return "the process that started its ranks, " + printable_line(name);
}

}  // namespace

int process_not_to_outlive() {
  const int parent = ::getppid();
  if (parent <= 1) return 0;
  const std::string name = name_of(parent);
  const bool is_launcher = name == kProxyName || name == kSlurmStep;
  return is_launcher || !ignores_hangup() ? parent : 0;
}

void end_with_proxy() {
  const int proxy = ::getppid();
  if (name_of(proxy) != kProxyName) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != proxy) ::raise(SIGKILL);  // it ended in between
}

LauncherWatch::LauncherWatch(const std::string& report_socket, std::span<const Started> ranks)
    : line_(report_socket) {
  const auto is_watched = [&](int pid) {
    return std::ranges::any_of(starters_,
                               [pid](const Watched& one) { return one.process.pid() == pid; });
  };
  for (const Started& rank : ranks) {
    if (rank.parent == 0) continue;
    for (const int pid : starters_of(rank.parent))
      if (!is_watched(pid)) starters_.push_back({ProcessWatch(pid), name_of(pid)});
    // Gone before it was watched: its number may be another's by now.
    if (process_state(rank.rank_pid) != 'X' && parent_of(rank.rank_pid) != rank.parent)
      for (Watched& one : starters_)
        if (one.process.pid() == rank.parent) one.process.assume_ended();
  }
}

void LauncherWatch::add_to(std::vector<pollfd>& fds) const {
  fds.push_back({line_.socket(), POLLIN, 0});
  for (const Watched& one : starters_) fds.push_back({one.process.descriptor(), POLLIN, 0});
}

std::string LauncherWatch::loss() {
  if (line_.lost())
    return fmt::format("its launcher, meshplan (pid {}), has ended", line_.launcher());
  // A proxy ends when its mpiexec does: seen in this order, mpiexec is the cause if both end,
  // though it may end between the two looks.
  std::string first;
  for (Watched& one : starters_ | std::views::reverse)
    if (one.process.ending())
      first = fmt::format("{} (pid {}), has ended", role_of(one.name), one.process.pid());
  return first;
}

}  // namespace meshplan::runtime
