#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <vector>

namespace meshplan::runtime {

/// What handled a signal before.
struct ReplacedAction {
  int signal = 0;
  bool replaced = false;
  struct sigaction before {};
};

/// Of SIGINT, SIGTERM, SIGHUP and SIGUSR1, by which a rank is asked to end.
using ReplacedActions = std::array<ReplacedAction, 4>;

/// While it lives, these signals have another handler, which runs on a stack of its own and with
/// all signals blocked. SIGHUP that was ignored (nohup) stays so. On the process's first thread.
class EndSignalHandlers {
 public:
  /// @param replaced  where the handler finds what was before: a static, as handlers reach nothing
  /// else  @param action  the handler and its flags
  EndSignalHandlers(ReplacedActions& replaced, struct sigaction action);
  ~EndSignalHandlers();
  EndSignalHandlers(const EndSignalHandlers&) = delete;
  EndSignalHandlers& operator=(const EndSignalHandlers&) = delete;

 private:
  ReplacedActions& replaced_;
  stack_t before_stack_{};
  std::vector<std::byte> stack_;
};

}  // namespace meshplan::runtime
