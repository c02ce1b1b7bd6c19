// Layers' passes that the engine plays as one operation each (program::lower_merged).
#pragma once

#include <optional>

#include "engine/play.hpp"
#include "program/plan/mesh.hpp"

namespace meshplan::sim {

struct Outcome;

/// Plays each kind of pass by itself, as the operations that its program lists of an earlier one,
/// and gives it the time that this takes. Fills Play::inseparable_passes.
void time_layer_passes(Play& play, const program::Mesh& mesh);

/// The last task, of any rank in the last step, of which a pass did not go as by itself: it did not
/// begin when its rank was free and its message there, or something ran beside it that takes of its
/// device.
std::optional<int> last_disturbed_task(const Play& play, const Outcome& outcome);

}  // namespace meshplan::sim
