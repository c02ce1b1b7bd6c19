#include "fuzz/trial.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <cxxabi.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <new>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
// The sanitizer's own limits take the place of RLIMIT_AS, which its shadow memory would exceed.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=1024:hard_rss_limit_mb=2048:detect_leaks=0:handle_abort=0";
}
#endif

namespace meshplan::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

std::string type_name(const std::exception& error) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status), std::free);
  return name ? name.get() : typeid(error).name();
}

/// Runs `work`; its verdict on what is thrown.
template <class Work>
Verdict judged(bool names_file, Work work) {
  try {
    work();
    return {.accepted = true, .fault = {}};
  } catch (const ConfigError& error) {
    if (!names_file) return {};
    if (std::strstr(error.what(), kFile) == nullptr)
      return {.fault = fmt::format("a refusal without its file: {}", error.what())};
    if (std::strchr(error.what(), '\n') != nullptr)  // that a string of the file began
      return {.fault = fmt::format("a refusal of several lines: {}", error.what())};
    return {};
  } catch (const InfeasibleError&) {
    return {};
  } catch (const IoError&) {
    return {};
  } catch (const InvariantError& error) {
    return {.accepted = false, .fault = error.what()};
  } catch (const std::exception& error) {
    return {.accepted = false, .fault = fmt::format("{}: {}", type_name(error), error.what())};
  }
}

[[maybe_unused]] bool confined = false;

[[maybe_unused]] std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void limit_memory(const Reader& reader) {
#if !defined(__SANITIZE_ADDRESS__)  // which reserves terabytes
  if (!confined) return;
  rlimit memory{};
  getrlimit(RLIMIT_AS, &memory);
  memory.rlim_cur = address_space() + reader.most_bytes;
  setrlimit(RLIMIT_AS, &memory);
#else
  (void)reader;
#endif
}

}  // namespace

Verdict try_input(const Reader& reader, const std::string& text, bool deep) {
  limit_memory(reader);
  Consumer consumer;
  Verdict verdict = judged(reader.names_file, [&] { consumer = reader.read(text); });
  if (!deep || !consumer || !verdict.fault.empty()) return verdict;
  verdict.fault = judged(/*names_file=*/false, consumer).fault;
  return verdict;
}

void confine_process(bool shows_errors) {
  confined = true;
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const int nowhere = open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO}) dup2(nowhere, stream);
  if (!shows_errors) dup2(nowhere, STDERR_FILENO);
}

double main_thread_seconds(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/schedstat", process));
  double nanoseconds = 0;
  return file >> nanoseconds ? nanoseconds * 1e-9 : 0;
}

std::string fault_of(const Reader& reader, const std::string& text, bool shows_errors) {
  int ends[2] = {};
  if (pipe(ends) != 0) throw IoError("cannot make a pipe");
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    confine_process(shows_errors);
    const std::string fault = try_input(reader, text, /*deep=*/true).fault;
    const auto written = write(ends[1], fault.data(), std::min<std::size_t>(fault.size(), 4000));
    _exit(written < 0 ? 1 : 0);
  }
  close(ends[1]);
  pollfd waiting{.fd = ends[0], .events = POLLIN, .revents = 0};
  constexpr int kLookEveryMs = 100;
  const auto give_up = Clock::now() + std::chrono::duration<double>(kMostSecondsWaited);
  bool over = false;
  while (!over && Clock::now() < give_up && main_thread_seconds(child) <= most_seconds)
    over = poll(&waiting, 1, kLookEveryMs) > 0;
  if (!over) kill(child, SIGKILL);
  std::string fault(4096, '\0');
  const ssize_t size = over ? read(ends[0], fault.data(), fault.size()) : 0;
  fault.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!over) return fmt::format("takes more than {} s", most_seconds);
  if (WIFSIGNALED(status)) return fmt::format("ended by signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return fmt::format("ended with {}", WEXITSTATUS(status));
  return fault;
}

std::string key_of(const std::string& fault) {
  std::string key;
  bool quoted = false;
  for (const char c : fault) {
    if (c == '\'') quoted = !quoted;
    const bool keep = !quoted && (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == ' ');
    if (keep && key.size() < 160) key += c;
  }
  return key;
}

std::string minimized(const Reader& reader, const std::string& text, const std::string& fault,
                      double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const std::string key = key_of(fault);
  std::string best = text;
  for (std::size_t part = std::max<std::size_t>(1, best.size() / 2); part > 0; part /= 2)
    for (std::size_t at = 0; at < best.size() && Clock::now() < end;) {
      std::string shorter = best;
      shorter.erase(at, part);
      if (key_of(fault_of(reader, shorter)) == key)
        best = std::move(shorter);
      else
        at += part;
    }
  return best;
}

}  // namespace meshplan::fuzz
