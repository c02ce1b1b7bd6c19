// A measured step time in the unit that most logs have.
#pragma once

namespace meshplan::cli {

/// Asks on standard error whether a --step-time that is far from what is predicted was in ms.
void note_other_unit(double step_time_s, double predicted_s);

}  // namespace meshplan::cli
