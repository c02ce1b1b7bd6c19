// The subcommands: each file adds one to the command line.
#pragma once

#include "options/command_line.hpp"

namespace meshplan::cli {

void add_plan_command(CommandLine& line);
void add_sweep_command(CommandLine& line);
void add_simulate_command(CommandLine& line);
void add_check_command(CommandLine& line);
void add_rules_command(CommandLine& line);
void add_mesh_command(CommandLine& line);
void add_schedule_command(CommandLine& line);
void add_models_command(CommandLine& line);
void add_clusters_command(CommandLine& line);
void add_explain_command(CommandLine& line);
void add_why_not_command(CommandLine& line);
void add_diff_command(CommandLine& line);
void add_compare_command(CommandLine& line);
void add_report_command(CommandLine& line);
void add_validate_command(CommandLine& line);
void add_export_command(CommandLine& line);
void add_import_command(CommandLine& line);
void add_manual_command(CommandLine& line);
void add_completion_command(CommandLine& line);

// Only where the runtime is built.
void add_run_command(CommandLine& line);
void add_status_command(CommandLine& line);
void add_checkpoint_command(CommandLine& line);
void add_data_command(CommandLine& line);
void add_trial_command(CommandLine& line);
void add_tune_command(CommandLine& line);
void add_calibrate_command(CommandLine& line);
void add_certify_command(CommandLine& line);

}  // namespace meshplan::cli
