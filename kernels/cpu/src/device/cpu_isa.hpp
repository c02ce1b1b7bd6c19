#pragma once

#include <string_view>

#include "device/kernel_table.hpp"
#include "kernels/cpu_backend.hpp"

namespace meshplan::kernels {

std::string_view name_of(CpuIsa isa);
const KernelTable& table_of(CpuIsa isa);

}  // namespace meshplan::kernels
