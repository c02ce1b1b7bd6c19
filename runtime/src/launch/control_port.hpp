// mpiexec's control port, which MPI's proxies call: who else reaches it can end the job.
#pragma once

#include "runtime/launch/launch.hpp"

namespace meshplan::runtime {

/// The listening socket of mpiexec (hydra), as its proxy and the ranks of its machine inherit it.
/// Hydra binds it to every address whatever interface it is given (HYDU_sock_listen; `-iface` only
/// chooses the address that proxies call), keeps it open as long as the job runs, and ends the job
/// at bytes that no proxy would send. It is needed until the last proxy has called.
class ControlPort {
 public:
  /// Looks for it among this process's files, before MPI opens its own. There is none on other
  /// machines than mpiexec's and under other launchers.
  ControlPort();
  ~ControlPort();
  ControlPort(const ControlPort&) = delete;
  ControlPort& operator=(const ControlPort&) = delete;

  /// Every proxy has called: the kernel drops whatever else comes to the port, for all processes
  /// that hold it. Connections that there are stay.
  void close_to_strangers();

 private:
  int socket_ = -1;
};

/// All ranks are under one proxy, so that it has called when one of them runs, and no message
/// leaves the machine.
bool is_alone_under_proxy(const EnvironmentLookup& environment);

}  // namespace meshplan::runtime
