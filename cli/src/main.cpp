// The meshplan command: surroundings in, exit code out.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <new>
#include <unistd.h>

#include "commands.hpp"
#include "core/error.hpp"
#include "exit_codes.hpp"
#include "files.hpp"

namespace {

using namespace meshplan;
using namespace meshplan::cli;

// Everything here is async-signal-safe: no half-written file is left, nothing else needs undoing.
extern "C" void on_interrupt(int) {
  remove_unfinished_file();
  _exit(kInterrupted);
}

Terminal look_around() {
  const char* term = std::getenv("TERM");
  const bool can_move_cursor = term != nullptr && std::string_view(term) != "dumb";
  // NO_COLOR users asked for plain text; a redrawn line is made of the same escapes.
  return {.redraws_stderr =
              isatty(STDERR_FILENO) != 0 && can_move_cursor && std::getenv("NO_COLOR") == nullptr};
}

int report(std::string_view kind, const std::exception& error, int code) {
  fmt::print(stderr, "meshplan: {}{}\n", kind, error.what());
  return code;
}

int run(int argc, char** argv) {
  try {
    CommandLine line(look_around());
    add_plan_command(line);
    add_simulate_command(line);
    add_mesh_command(line);
    add_schedule_command(line);
    add_models_command(line);
    add_clusters_command(line);
    add_compare_command(line);
    add_validate_command(line);
#if MESHPLAN_HAS_RUNTIME
    add_run_command(line);
    add_checkpoint_command(line);
    add_data_command(line);
    add_trial_command(line);
    add_calibrate_command(line);
#endif
    return line.run(argc, argv);
  } catch (const ConfigError& error) {
    return report("", error, kBadInput);
  } catch (const InfeasibleError& error) {
    return report("", error, kInfeasible);
  } catch (const std::bad_alloc& error) {
    return report("out of memory: ", error, kFailed);
  } catch (const std::exception& error) {
    return report("", error, kFailed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, on_interrupt);
  const int code = run(argc, argv);
  // Results that did not reach the reader are a failure, whatever was computed.
  if (std::fflush(stdout) != 0) {
    std::fputs("meshplan: standard output cannot be written\n", stderr);
    return kFailed;
  }
  return code;
}
