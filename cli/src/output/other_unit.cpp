#include "output/other_unit.hpp"

#include "core/units.hpp"
#include "output/output.hpp"

namespace meshplan::cli {

void note_other_unit(double step_time_s, double predicted_s) {
  constexpr double kFarApart = 200;
  if (step_time_s <= kFarApart * predicted_s) return;
  output(stderr,
         "note     --step-time {:g}: seconds, {:.0f} times what is predicted; if it was in ms, say "
         "--step-time {:g}\n",
         step_time_s, step_time_s / predicted_s, step_time_s / kMilliseconds);
}

}  // namespace meshplan::cli
