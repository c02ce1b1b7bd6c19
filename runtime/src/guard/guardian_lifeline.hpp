#pragma once

#include <array>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "guard/spare.hpp"
#include "os/process_watch.hpp"
#include "runtime/guard/status_board.hpp"

namespace meshplan::runtime {

/// A rank's connection with its machine's guardians, both of which hold the other end of it. It
/// closes when this process ends, however it ends, and when both guardians have ended. A thread
/// looks at it, and once a second whether both are stopped: then nobody would notice a death, so
/// that the rank says why, ends every rank of the machine and itself. The thread calls no MPI.
class GuardianLifeline {
 public:
  /// @param socket  connected; becomes this object's
  /// @param name  of this machine
  /// @param report_socket  see WatchdogOptions
  GuardianLifeline(int socket, GuardPost& post, std::span<StatusSlot> slots, std::string name,
                   std::string report_socket);
  /// The rank has finished or failed, and its slot says so.
  ~GuardianLifeline();
  GuardianLifeline(const GuardianLifeline&) = delete;
  GuardianLifeline& operator=(const GuardianLifeline&) = delete;

 private:
  void watch();
  [[noreturn]] void end_job(const std::string& how);
  void end_stopped_guardians() const;
  void end_idle_guardians() const;
  std::array<int, 2> guardians() const;

  int socket_;
  int wake_;  // of the thread: its work is done
  GuardPost& post_;
  std::span<StatusSlot> slots_;
  std::string name_;
  std::string report_socket_;
  std::vector<ProcessWatch> other_ranks_;  // of this machine
  std::thread thread_;
};

}  // namespace meshplan::runtime
