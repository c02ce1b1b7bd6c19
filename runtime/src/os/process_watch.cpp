#include "os/process_watch.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <poll.h>
#include <sstream>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace meshplan::runtime {
namespace {

/// Not through an iterator: a process that dies between open and read makes that throw.
std::string text_of(int pid, const char* file) {
  std::ifstream in(fmt::format("/proc/{}/{}", pid, file));
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

std::vector<int> all_processes() {
  std::vector<int> processes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos)
      processes.push_back(std::atoi(name.c_str()));
  }
  return processes;
}

/// A file of strings that each end with a zero.
std::vector<std::string> strings_of(int pid, const char* file) {
  std::istringstream text(text_of(pid, file));
  std::vector<std::string> strings;
  for (std::string word; std::getline(text, word, '\0');) strings.push_back(word);
  return strings;
}

/// What follows the name in /proc/PID/stat: the name itself may hold any character.
std::string after_name(int pid) {
  const std::string text = text_of(pid, "stat");
  const auto end_of_name = text.rfind(')');
  return end_of_name == std::string::npos || end_of_name + 2 >= text.size()
             ? std::string()
             : text.substr(end_of_name + 2);
}

}  // namespace

char process_state(int pid) {
  const std::string fields = after_name(pid);
  return fields.empty() ? 'X' : fields[0];
}

bool is_stopped(int pid) {
  return pid > 0 && process_state(pid) == 'T';
}

int parent_of(int pid) {
  std::istringstream fields(after_name(pid));
  char state = 'X';
  int parent = 0;
  fields >> state >> parent;
  return parent;
}

std::string name_of(int pid) {
  std::string name = text_of(pid, "comm");
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

std::vector<std::string> arguments_of_process(int pid) {
  return strings_of(pid, "cmdline");
}

int exit_status_of(int pid) {
  // See proc(5): of what follows the name, the first field is 3 and the last, 52, the status.
  const std::string fields = after_name(pid);
  const auto last = fields.find_last_of(' ');
  if (fields.empty() || fields[0] != 'Z' || last == std::string::npos) return -1;
  return std::atoi(fields.c_str() + last);
}

std::vector<int> children_of(int pid) {
  std::vector<int> children;
  if (std::ifstream listed(fmt::format("/proc/{0}/task/{0}/children", pid)); listed) {
    for (int child = 0; listed >> child;) children.push_back(child);
    return children;
  }
  for (const int process : all_processes())  // a kernel that does not list them
    if (parent_of(process) == pid) children.push_back(process);
  return children;
}

std::vector<int> processes_with_variable(const std::string& assignment) {
  std::vector<int> processes = all_processes();
  std::erase_if(processes, [&](int pid) {
    const std::vector<std::string> variables = strings_of(pid, "environ");
    return std::ranges::find(variables, assignment) == variables.end();
  });
  return processes;
}

std::vector<int> ancestors_of(int pid) {
  constexpr std::size_t kMost = 64;
  std::vector<int> ancestors;
  for (int next = parent_of(pid); next > 1 && ancestors.size() < kMost; next = parent_of(next))
    ancestors.push_back(next);
  return ancestors;
}

double resident_bytes_of(int pid) {
  std::istringstream pages(text_of(pid, "statm"));
  double total = 0;
  double resident = 0;
  pages >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

ProcessWatch::ProcessWatch(int pid)
    : pid_(pid), descriptor_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
  ended_ = descriptor_ < 0 && errno != ENOSYS;
}

ProcessWatch::~ProcessWatch() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept
    : pid_(other.pid_), descriptor_(std::exchange(other.descriptor_, -1)), ended_(other.ended_) {}

ProcessWatch& ProcessWatch::operator=(ProcessWatch&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(ended_, other.ended_);
  return *this;
}

bool ProcessWatch::ended() {
  if (ended_) return true;
  if (descriptor_ >= 0) {
    pollfd ready{descriptor_, POLLIN, 0};
    ended_ = ::poll(&ready, 1, 0) > 0;
  } else {
    const char state = process_state(pid_);
    ended_ = state == 'X' || state == 'Z';
  }
  return ended_;
}

bool ProcessWatch::ending() {
  if (ended()) return true;
  // See proc(5): the state, five numbers, then the flags; PF_EXITING of linux/sched.h.
  constexpr unsigned kExiting = 0x4;
  std::istringstream fields(after_name(pid_));
  std::string skipped;
  for (int field = 0; field < 6; ++field) fields >> skipped;
  unsigned flags = 0;
  fields >> flags;
  return (flags & kExiting) != 0;
}

void ProcessWatch::signal(int number) const {
  if (ended_) return;
  if (descriptor_ >= 0)
    syscall(SYS_pidfd_send_signal, descriptor_, number, nullptr, 0);
  else
    ::kill(pid_, number);
}

}  // namespace meshplan::runtime
