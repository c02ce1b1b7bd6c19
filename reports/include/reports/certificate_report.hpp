#pragma once

#include <string>

#include "program/certificate/certificate.hpp"

namespace meshplan::reports {

/// The twins with the figure of each that lies furthest into its tolerance, what was compared by
/// kind, what no twin shows, and the verdict.
std::string to_text(const program::Certificate& certificate);

}  // namespace meshplan::reports
