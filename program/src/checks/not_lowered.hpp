// What a plan may say and this version neither lowers nor prices yet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::program {

/// @param what     "dropout 0.1"
/// @param way_out  what to do instead, if there is something
std::string not_lowered_message(const models::ModelSpec& model, std::string_view what,
                                std::string_view way_out = "");

/// A message for each such part of the model and the way it is trained. Of a plan of our own
/// runtime.
std::vector<std::string> not_lowered(const Plan& plan);

}  // namespace meshplan::program
