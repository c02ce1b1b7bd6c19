// model_config.yaml of Megatron-LM's functional tests: flags as a map.
#pragma once

#include "formats/megatron_launch/launch.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::planner::megatron {

bool is_test_case(std::string_view name, std::string_view text);

/// MODEL_ARGS, as _run_training.sh makes arguments of it: true is a flag alone, "[a b]" several
/// values. Its program is the folder of the case's model: "gpt", "t5".
/// @throws ConfigError with the file and the key
Launch launch_of_test_case(const ImportRequest& request);

}  // namespace meshplan::planner::megatron
