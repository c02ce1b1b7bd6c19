#include "guard/become_guardian.hpp"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace meshplan::runtime {

void become_guardian(const GuardianConfig& config, const char* name) {
  setsid();
  prctl(PR_SET_NAME, name);
  // If allowed: it must see a death before the launcher has killed everybody.
  const sched_param priority{1};
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0) setpriority(PRIO_PROCESS, 0, -10);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  std::signal(SIGCHLD, SIG_IGN);  // nobody waits for a spare
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int last = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536));
  const auto stays = [&](int file) {
    return file == config.network.listener || file == config.lifeline_listener ||
           std::ranges::find(config.lifelines, file, &Lifeline::socket) != config.lifelines.end();
  };
  for (int file = STDERR_FILENO + 1; file < last; ++file)
    if (!stays(file)) ::close(file);
}

}  // namespace meshplan::runtime
