// How a folder is known as a checkpoint, so that nothing else writes into it.
#pragma once

#include <string>

namespace meshplan {

/// The file of a checkpoint that holds what a rank saved: "rank-00002.safetensors".
std::string checkpoint_share_name(int rank);

/// The checkpoint, complete or not, that a file at `path` would lie in; "" = none.
std::string checkpoint_around(const std::string& path);

}  // namespace meshplan
