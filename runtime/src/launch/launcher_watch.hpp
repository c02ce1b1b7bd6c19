// Whether those who started a machine's ranks still live: a guardian's view upwards.
#pragma once

#include <poll.h>
#include <span>
#include <string>
#include <vector>

#include "launch/launcher_line.hpp"
#include "os/process_watch.hpp"

namespace meshplan::runtime {

constexpr const char* kProxyName = "hydra_pmi_proxy";  // MPI's, which starts the ranks

/// The process that this rank must not outlive: who started it; 0 = nobody. A rank that is not
/// MPI's and ignores SIGHUP (nohup) was meant to outlive whoever started it.
int process_not_to_outlive();

/// Under MPI's own proxy: the kernel kills this process when the proxy ends, also before there is a
/// guardian. Elsewhere nothing: the kernel would count the end of the thread that started it.
void end_with_proxy();

/// `meshplan run` on this machine, mpiexec, MPI's proxy, torchrun's agent: whoever is there.
class LauncherWatch {
 public:
  struct Started {
    int rank_pid = 0;
    int parent = 0;  // process_not_to_outlive() of that rank
  };

  LauncherWatch(const std::string& report_socket, std::span<const Started> ranks);

  LauncherLine& line() { return line_; }
  void add_to(std::vector<pollfd>& fds) const;
  /// Who has ended, as the cause of the job's end; empty while all live.
  std::string loss();

 private:
  struct Watched {
    ProcessWatch process;
    std::string name;
  };
  LauncherLine line_;
  std::vector<Watched> starters_;  // outermost first: its end explains that of those below
};

}  // namespace meshplan::runtime
