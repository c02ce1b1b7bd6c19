// What a program of Megatron's is for, by its name and its flags.
#pragma once

#include <string>
#include <vector>

#include "formats/megatron/reading.hpp"

namespace meshplan::planner::megatron {

/// "generates text or serves", "converts checkpoints"; empty for one that trains, or does not say.
/// @param program  its file or module: "pretrain_gpt.py", "examples.inference.server"
std::string other_purpose(std::string_view program);

/// @param program  as above; of a test case its folder
/// @throws ConfigError for models that are no decoders of text alone, with what says so
void require_decoder(const Reading& reading, const std::string& program, const std::string& place);

}  // namespace meshplan::planner::megatron
