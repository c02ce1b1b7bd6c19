#include "program/plan/lowering_profile.hpp"

namespace meshplan::program {

LoweringProfile meshplan_profile() {
  return {};
}

}  // namespace meshplan::program
