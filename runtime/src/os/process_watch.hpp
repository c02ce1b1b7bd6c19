// What /proc and a descriptor of a process tell about it. Linux only, like all of the runtime.
#pragma once

#include <string>
#include <vector>

namespace meshplan::runtime {

/// The state letter of /proc/PID/stat; 'X' if the process is gone.
char process_state(int pid);
/// By a signal, not by a debugger. 0 is no process.
bool is_stopped(int pid);
/// 0 if the process is gone, or its parent is outside this container.
int parent_of(int pid);
/// The name of its program, cut to 15 bytes by the kernel; empty if it is gone.
std::string name_of(int pid);
/// Its arguments, the program first; none if it is gone or has ended.
std::vector<std::string> arguments_of_process(int pid);
/// As waitpid() gives it, of a process that has ended and that its parent has not collected yet;
/// -1 if it lives, is gone, or is another user's.
int exit_status_of(int pid);
std::vector<int> children_of(int pid);
/// Those of this machine that were started with a variable of this value, as "NAME=VALUE", and
/// what they have forked; of others than this user's it is not known.
std::vector<int> processes_with_variable(const std::string& assignment);
/// Its parent, that one's parent and so on, without the first process of the machine.
std::vector<int> ancestors_of(int pid);
/// Bytes of memory that it holds; 0 if it is gone.
double resident_bytes_of(int pid);

/// Sees a process end, whoever's child it is, and survives the reuse of its number.
class ProcessWatch {
 public:
  explicit ProcessWatch(int pid);
  ~ProcessWatch();
  ProcessWatch(ProcessWatch&& other) noexcept;
  ProcessWatch& operator=(ProcessWatch&& other) noexcept;

  int pid() const { return pid_; }
  /// Readable (poll) once the process has ended; -1 if it has, or on a kernel without pidfds.
  int descriptor() const { return ended_ ? -1 : descriptor_; }
  /// Looks now; remembers.
  bool ended();
  /// Looks now: true from when the process stops running, before what it held is closed, which
  /// others may see and follow long before ended() (kernel/exit.c: exit_signals, exit_files,
  /// exit_notify).
  bool ending();
  void assume_ended() { ended_ = true; }
  void signal(int number) const;

 private:
  int pid_ = 0;
  int descriptor_ = -1;
  bool ended_ = false;
};

}  // namespace meshplan::runtime
