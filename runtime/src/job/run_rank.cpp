#include "runtime/job/run_rank.hpp"

#include <chrono>
#include <exception>
#include <fmt/format.h>
#include <new>
#include <string>
#include <thread>
#include <unistd.h>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "launch/launcher_line.hpp"
#include "os/out_of_memory.hpp"
#include "os/written_pipe.hpp"

namespace meshplan::runtime {

int run_rank(const Session& session, const std::function<int()>& work) {
  const auto fail = [&](const std::exception& error, const std::string& what, int exit_code) {
    const auto rank = static_cast<std::size_t>(session.rank());
    const std::string line = printable(fmt::format("meshplan: rank {} on {}: {}\n", rank,
                                                   session.layout().host_of_rank[rank], what));
    launcher_line().say(LauncherMessage::Kind::Failed, session.rank());
    // Rank 0 speaks for all, and ends them: the others only make sure that the job ends.
    const bool shared = dynamic_cast<const SharedError*>(&error) != nullptr ||
                        dynamic_cast<const SharedConfigError*>(&error) != nullptr;
    const bool silent = session.rank() != 0 && shared;
    // One write: lines of several ranks must not mix.
    [[maybe_unused]] const auto written =
        silent ? 0 : ::write(STDERR_FILENO, line.data(), line.size());
    if (session.size() > 1) {
      constexpr std::chrono::milliseconds kReading{5'000};  // on a machine that is very busy
      constexpr std::chrono::milliseconds kForwarding{100};
      constexpr std::chrono::milliseconds kForRankZero{2'000};
      // mpiexec's proxy takes lines and aborts by different ways: an abort that overtook the line
      // lost 1 of 50. What the proxy has read it forwards first.
      if (!silent) wait_until_read(STDERR_FILENO, kReading);
      std::this_thread::sleep_for(silent ? kForRankZero : kForwarding);
      session.abort(exit_code);
    }
    return exit_code;
  };
  try {
    return work();
  } catch (const ConfigError& error) {
    return fail(error, error.what(), 2);
  } catch (const InfeasibleError& error) {
    return fail(error, error.what(), 3);
  } catch (const std::bad_alloc& error) {
    return fail(error, describe_refused_memory(error), 1);
  } catch (const std::exception& error) {
    return fail(error, error.what(), 1);
  }
}

}  // namespace meshplan::runtime
