// The meshplan command: surroundings in, exit code out.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <new>
#include <unistd.h>

#include "commands/anchors/adjust_command.hpp"
#include "commands/commands.hpp"
#include "commands/scaling/scaling_commands.hpp"
#include "core/error.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/folders.hpp"
#if MESHPLAN_HAS_RUNTIME
#include "commands/lesson/lesson_command.hpp"
#include "process/temporary_folder.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/launch/proxy_exit_code.hpp"
#endif

namespace {

using namespace meshplan;
using namespace meshplan::cli;

// Everything here is async-signal-safe: no half-written file is left, nothing else needs undoing.
extern "C" void on_interrupt(int /*signal*/) {
  remove_unfinished_file();
  remove_unfinished_folder();
#if MESHPLAN_HAS_RUNTIME
  remove_temporary_folder();
  runtime::tell_launcher_of_interrupt();
  runtime::let_proxy_see_exit_code();
#endif
  _exit(kInterrupted);
}

// UCX, which MPI loads, takes SIGHUP for itself before main() runs (UCX_DEBUG_SIGNO): look first.
bool ignored_hangup = false;

void note_hangup(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  struct sigaction action {};
  ignored_hangup = sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

__attribute__((section(".preinit_array"), used)) void (*const kLookFirst)(int, char**,
                                                                          char**) = note_hangup;

/// Who ignores a hang-up (nohup) wants to outlive it. Ranks begin with it ignored, as their mpiexec
/// does: their launcher says whether it was the user's wish.
bool is_hangup_ignored() {
#if MESHPLAN_HAS_RUNTIME
  if (std::getenv(runtime::kReportSocketVariable) != nullptr)
    return std::getenv(runtime::kIgnoreHangupVariable) != nullptr;
#endif
  return ignored_hangup;
}

void handle_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  std::signal(SIGUSR1, on_interrupt);  // the launcher's, to ranks
  std::signal(SIGHUP, is_hangup_ignored() ? SIG_IGN : on_interrupt);
}

/// What is opened later must not become a standard stream that the caller has closed. These fail
/// when written to, as before.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", O_RDONLY);
}

Terminal look_around() {
  const char* term = std::getenv("TERM");
  const bool can_move_cursor = term != nullptr && std::string_view(term) != "dumb";
  // NO_COLOR users asked for plain text; a redrawn line is made of the same escapes.
  const bool escapes = can_move_cursor && std::getenv("NO_COLOR") == nullptr;
  return {.redraws_stderr = isatty(STDERR_FILENO) != 0 && escapes,
          .colors_stdout = isatty(STDOUT_FILENO) != 0 && escapes};
}

int report(std::string_view kind, const std::exception& error, int code) {
#if MESHPLAN_HAS_RUNTIME
  runtime::tell_launcher_of_failure();
#endif
  output(stderr, "meshplan: {}{}\n", kind, error.what());
  return code;
}

int run(int argc, char** argv) {
  try {
    CommandLine line(look_around());
    add_plan_command(line);
    add_sweep_command(line);
    add_scale_command(line);
    add_strategies_command(line);
    add_simulate_command(line);
    add_check_command(line);
    add_rules_command(line);
    add_explain_command(line);
    add_why_not_command(line);
    add_diff_command(line);
    add_mesh_command(line);
    add_schedule_command(line);
    add_models_command(line);
    add_clusters_command(line);
    add_compare_command(line);
    add_report_command(line);
    add_validate_command(line);
    add_adjust_command(line);
    add_export_command(line);
    add_import_command(line);
#if MESHPLAN_HAS_RUNTIME
    add_run_command(line);
    add_status_command(line);
    add_checkpoint_command(line);
    add_data_command(line);
    add_trial_command(line);
    add_tune_command(line);
    add_calibrate_command(line);
    add_certify_command(line);
    add_lesson_command(line);
#endif
    add_completion_command(line);
    add_manual_command(line);
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
  occupy_closed_streams();
#if MESHPLAN_HAS_RUNTIME
  runtime::greet_launcher();
#endif
  handle_interrupts();
  const int code = run(argc, argv);
  // Results that did not reach the reader are a failure, whatever was computed.
  if (!flush_or_give_up_stdout().empty()) {
    std::fputs("meshplan: standard output cannot be written\n", stderr);
    return kFailed;
  }
  return code;
}
